"""Checks that a downloaded file or artifact equals the uploaded one."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime import artifacts
from runtime.s3.errors import StorageError


def matches_object(path: Path, head: Mapping[str, Any]) -> bool:
    """Whether the file at ``path`` has the size, and the SHA-256 if it is known, of an object's HEAD response."""
    if not path.is_file() or path.stat().st_size != head["ContentLength"]:
        return False
    digest: str | None = head["Metadata"].get("sha256")
    if digest is None:  # the object was uploaded by another program
        return True
    return artifacts.hash_files(path)["."] == digest


def check_manifest(folder: Path, uri: str) -> None:
    """Compare a downloaded artifact with its manifest, if any; another process may be writing to ``uri``."""
    if not (folder / artifacts.MANIFEST).is_file():
        return
    expected = artifacts.read_manifest(folder)["files"]
    actual = artifacts.hash_files(folder)
    del actual[artifacts.MANIFEST]
    wrong = sorted(name for name in expected | actual if expected.get(name) != actual.get(name))
    if wrong:
        shutil.rmtree(folder)
        raise StorageError(
            f"{uri}: {', '.join(wrong[:5])} differ from the manifest: the upload is incomplete, repeat it"
        )
