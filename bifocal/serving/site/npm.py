"""ONNX Runtime for browsers: files of an npm package, verified by their hashes, in the wheel or in
a cache of the user.

    python -m bifocal.serving.site.npm              fetch the files, unless they are there
    python -m bifocal.serving.site.npm FILE.tgz     take them from a package that 'npm pack' fetched
    elsewhere

Needs only the standard library and ``bifocal.durable``, because the build of the wheel runs it.
"""

import base64
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from bifocal.durable import new_folder

PINNED = json.loads(Path(__file__).with_name("npm.json").read_text(encoding="utf-8"))
NAME = f"{PINNED['package']}@{PINNED['version']}"
PACKAGED = Path(__file__).with_name("vendor")
"""Folder of the files in a wheel."""
SECONDS = 600
"""Longest time of a download."""


def vendored_files() -> Path:
    """Return a folder with the files ``ort.js`` and ``ort.wasm``; npm fetches them if they are
    nowhere."""
    cache = cache_folder()
    for folder in (PACKAGED, cache):
        if _is_complete(folder):
            return folder
    with tempfile.TemporaryDirectory() as temporary:
        try:
            subprocess.run(
                ["npm", "pack", NAME, "--loglevel", "error", "--pack-destination", temporary],
                check=True,
                capture_output=True,
                text=True,
                cwd=temporary,
                timeout=SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[0]
            raise FileNotFoundError(
                f"{NAME} is not in this installation, and npm cannot fetch it ({reason}): "
                "install Node.js with npm and try again with a network; or run 'npm pack "
                f"{NAME}' on another machine, and here 'python -m bifocal.serving.site.npm "
                "FILE.tgz'"
            ) from error
        (package,) = Path(temporary).glob("*.tgz")
        return unpack(package, cache)


def unpack(package: Path, folder: Path) -> Path:
    """Write the pinned files of a package to a folder, in place of an incomplete copy, and return
    it."""
    algorithm, _, expected = PINNED["integrity"].partition("-")
    found = base64.b64encode(hashlib.new(algorithm, package.read_bytes()).digest()).decode()
    if found != expected:
        raise ValueError(
            f"{package.name} has the {algorithm} {found}, expected {expected} of {NAME}: fetch "
            "it again"
        )
    with new_folder(folder, replace=True) as partial, tarfile.open(package) as archive:
        for name, file in PINNED["files"].items():
            content = archive.extractfile(f"package/{file['path']}")
            assert content is not None  # the hash of the package says that it has the file
            (partial / name).write_bytes(content.read())
    return folder


def cache_folder() -> Path:
    """Return the folder below the user's cache that keeps the files of the pinned version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "bifocal" / f"{PINNED['package']}-{PINNED['version']}"


def _is_complete(folder: Path) -> bool:
    files = [(folder / name, file["sha256"]) for name, file in PINNED["files"].items()]
    return all(
        file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == digest
        for file, digest in files
    )


if __name__ == "__main__":
    try:
        fetched = (
            unpack(Path(sys.argv[1]), cache_folder()) if len(sys.argv) > 1 else vendored_files()
        )
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    sys.stdout.write(f"{NAME}: {fetched}\n")
