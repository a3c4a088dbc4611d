"""Folder of the local copies of files on S3."""

import os
import tempfile
from pathlib import Path

from runtime.s3.errors import StorageError

VARIABLE = "BIFOCAL_CACHE"


def cache_folder() -> Path:
    """Create the folder of local copies; without ``BIFOCAL_CACHE``, a container may only write to the temporary one."""
    chosen = os.environ.get(VARIABLE)
    home = os.environ.get("XDG_CACHE_HOME")
    folder = Path(chosen).absolute() if chosen else Path(home) / "bifocal" if home else _temporary_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(None, "permission denied")
    except OSError as error:
        raise StorageError(
            f"{folder}: this folder of local copies cannot be written ({error.strerror}); "
            f"set {VARIABLE} to a folder that can"
        ) from error
    return folder


def _temporary_folder() -> Path:
    try:
        folder = Path(tempfile.gettempdir()) / f"bifocal-{os.getuid()}"
    except FileNotFoundError as error:
        raise StorageError(f"no temporary folder can be written; set {VARIABLE} to a folder that can") from error
    # Every user can create this folder before its owner does.
    if os.path.lexists(folder) and folder.lstat().st_uid != os.getuid():
        raise StorageError(f"{folder} belongs to another user; set {VARIABLE} to another folder")
    return folder
