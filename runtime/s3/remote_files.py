"""Files of the user on S3: single ones that are downloaded when they are opened, and paths in
parameters."""

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from bifocal.datasets import remote_files
from bifocal.durable.cached import cache_folder
from runtime.artifacts import hash_files
from runtime.s3.storage import Storage
from runtime.s3.uri import COPIES, SCHEME, StorageError, cache_path, is_remote
from runtime.spec import Component, replace_values


def fetch_remote_files() -> None:
    """Let ``bifocal`` open files at ``s3://`` addresses in this process."""
    remote_files.set_fetch(local_copy)


def address_of_copy(path: Path) -> str | None:
    """Return the address of the local copy ``path``, None for others; the folder of all copies is
    ``s3://``."""
    folder = cache_folder(COPIES)
    return (
        f"{SCHEME}{'/'.join(path.relative_to(folder).parts)}"
        if path.is_relative_to(folder)
        else None
    )


def local_copy(address: str, sha256: str) -> Path:
    """Return the local copy of the file at ``address``; download it unless an equal one is
    there."""
    path = cache_path(address)
    if path.is_file() and hash_files(path)["."] == sha256:
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several threads or processes may fetch one file.
    with NamedTemporaryFile(dir=path.parent, suffix=".download", delete=False) as file:
        temporary = Path(file.name)
    try:
        _storage(os.getpid()).download_file(address, temporary)
        if hash_files(temporary)["."] != sha256:
            raise StorageError(
                f"{address} has changed since the dataset was made: make the dataset again"
            )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


@cache
def _storage(process: int) -> Storage:
    """Client of this process: a forked one must not share the connections of its parent."""
    return Storage()


def download_user_files(values: Mapping[str, Any], component: Component) -> dict[str, Any]:
    """Download the component's user files that are on S3; return ``values`` with the paths of the
    copies. The component lists its ``listed_paths`` itself.
    """
    section = values.get(component.name, {})
    copies: dict[tuple[str | int, ...], str] = {}
    for location, path in component.user_paths(section).items():
        if is_remote(path):
            if location not in [(name,) for name in component.listed_paths]:
                Storage().download(path, cache_path(path))
            copies[location] = str(cache_path(path))
    return {**values, component.name: replace_values(section, copies)}


def source_digests(values: Mapping[str, Any], component: Component) -> dict[str, str]:
    """Return a digest of each of the component's user files that are on S3, by its address."""
    paths = sorted(set(component.user_paths(values.get(component.name, {})).values()))
    return {path: Storage().digest(path) for path in paths if is_remote(path)}
