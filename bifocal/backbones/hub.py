"""Files of repositories on the Hugging Face hub, or on another hub that ``HF_ENDPOINT`` names.
Needs no torch."""

import hashlib
import socket
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit
from urllib.request import getproxies

from bifocal.backbones import packages
from bifocal.durable import check_own
from bifocal.durable.cached import cache_folder

CONNECT_SECONDS = 5.0
LOOK_SECONDS = 2.0


def download(
    repository: str, files: Sequence[str], excluded: Sequence[str] = (), *, offline: bool = False
) -> Path:
    """Return a folder with a repository's files: of a package, of the cache of the hub's library,
    or by a download.

    The library shows a bar, and goes on with an interrupted download. The checksums of a download
    are compared with the hub's; then a mark in the user's cache says so, and the next call needs no
    network.

    Args:
        repository: owner and name.
        files: names and patterns of the files; missing ones are left out.
        excluded: patterns of files that are left out.
        offline: take the files of earlier downloads only.

    Raises:
        FileNotFoundError: the hub cannot be reached, has no such repository, or a checksum differs.
    """
    if (packaged := packages.packaged_folder(repository)) is not None:
        return packaged
    from huggingface_hub import HfApi, constants, snapshot_download

    key = f"{constants.ENDPOINT} {repository} {sorted(files)} {sorted(excluded)}"
    mark = cache_folder("hub") / hashlib.sha256(key.encode()).hexdigest()[:32]
    check_own(mark)
    if mark.is_file() and (folder := Path(mark.read_text(encoding="utf-8"))).is_dir():
        return folder
    # Without a network, the library would try again for minutes.
    offline = offline or constants.HF_HUB_OFFLINE or not is_reachable(constants.ENDPOINT)
    try:
        found_files = snapshot_download(
            repository,
            allow_patterns=list(files),
            ignore_patterns=list(excluded),
            local_files_only=offline,
        )
        folder = Path(found_files)
        if offline:
            return folder
        found = HfApi().verify_repo_checksums(repository, revision=folder.name)
    except Exception as error:  # the library raises classes of three packages
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        reason = f"{urlsplit(_address()).netloc} cannot be reached" if offline else first
        if isinstance(error, OSError) and error.filename:
            reason += "; HF_HOME names the folder of the hub's files"
        raise FileNotFoundError(
            f"{repository} cannot be downloaded ({reason}): "
            f"{_address()}/{repository}/tree/main has the files"
        ) from error
    if found.mismatches:
        for mismatch in found.mismatches:  # the next call downloads them again
            (folder / mismatch["path"]).resolve().unlink()
            (folder / mismatch["path"]).unlink(missing_ok=True)
        name = found.mismatches[0]["path"]
        raise FileNotFoundError(
            f"{name} of {repository} has another checksum than the hub's: run the same again"
        )
    mark.write_text(str(folder), encoding="utf-8")
    return folder


def download_size(
    repository: str, files: Sequence[str], excluded: Sequence[str] = ()
) -> int | None:
    """Return the bytes of a repository's files; None if the hub does not say so within
    ``LOOK_SECONDS``."""
    from huggingface_hub import HfApi, constants

    def matches(name: str, patterns: Sequence[str]) -> bool:
        return any(fnmatch(name, pattern) for pattern in patterns)

    found = list[int]()

    def ask() -> None:
        with suppress(Exception):  # the library raises classes of three packages
            info = HfApi().model_info(repository, files_metadata=True, timeout=LOOK_SECONDS)
            sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
            wanted = [
                name for name in sizes if matches(name, files) and not matches(name, excluded)
            ]
            found.append(sum(sizes[name] for name in wanted))

    if not constants.HF_HUB_OFFLINE:
        thread = Thread(target=ask, daemon=True)  # a name server may not answer for minutes
        thread.start()
        thread.join(LOOK_SECONDS)
    return next(iter(found), None)


def file_address(repository: str, file: str) -> str:
    """Return the address of a repository's file on the hub."""
    return f"{_address()}/{repository}/resolve/main/{file}"


def _address() -> str:
    """Return the address of the hub for messages, without the login that it may have."""
    from huggingface_hub import constants

    parts = urlsplit(constants.ENDPOINT)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def is_reachable(url: str) -> bool:
    """Return whether the host of ``url`` accepts connections; with a proxy, only a download can
    tell: true."""
    parts = urlsplit(url)
    if parts.hostname is None or getproxies():
        return True
    try:
        port = parts.port or {"http": 80}.get(parts.scheme, 443)
        socket.create_connection((parts.hostname, port), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
