"""The files of a folder of images."""

import os
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from bifocal.datasets.base import RejectedEntry
from bifocal.progress import log_line, printable

IMAGE_SUFFIXES = frozenset(
    {
        ".jpg",
        ".jpeg",
        ".jpe",
        ".jfif",
        ".png",
        ".gif",
        ".bmp",
        ".tif",
        ".tiff",
        ".webp",
        ".ppm",
        ".pgm",
        ".pnm",
        ".jp2",
        ".avif",
        ".heic",
        ".heif",
    }
)
TEXT_SUFFIXES = frozenset({".txt"})
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
ARCHIVES = (".zip", ".tar", ".tgz", ".gz")
READ = (*IMAGE_SUFFIXES, *TEXT_SUFFIXES, *TABLES, *ARCHIVES, ".json")
"""Ends of the names of files that are read."""
WRITTEN = ("artifacts/dataset", "artifacts/onnx", "artifacts/collection", "page/gallery.js")
"""Contents of a run folder, and of a static copy of the page: their pictures are results."""
LINK = "a link out of the folder, or to another folder: copy the files"
NOT_UTF8 = "its name is not UTF-8: rename it"
MAX_DEPTH, DEEP = 100, "in more than 100 folders: move it up"
SHOWN = 5
"""Types of files to name."""


@dataclass(frozen=True)
class Folder:
    """Files below a folder, by their paths with "/", sorted."""

    root: Path
    images: Sequence[str]
    texts: Sequence[str]  # files that may have the captions of an image
    others: Sequence[str] = ()
    left_out: Sequence[
        tuple[str, str]
    ] = ()  # names of files and folders that cannot be read, with the reason

    def rejected(self) -> list[RejectedEntry]:
        """Return the files and folders that are left out, with the reason."""
        return [RejectedEntry("image", name, reason) for name, reason in self.left_out]

    def log_unread(self) -> None:
        """Print how many files have types that are not read, if any have."""
        unread = [name for name in self.others if not name.lower().endswith(READ)]
        types = Counter(PurePosixPath(name).suffix.lower() or "without a suffix" for name in unread)
        if unread:
            kinds = ", ".join(kind for kind, _ in types.most_common(SHOWN))
            log_line(
                f"{len(unread):,} files are not read ({kinds}), such as {unread[0]}: save "
                "photographs as JPEG or PNG"
            )

    def leads_out(self, path: str) -> bool:
        """Return whether a path leads out of the folder by a link; False for an absolute path and
        one with ".."."""
        parts = PurePosixPath(path).parts
        if path in self.listed or ".." in parts or PurePosixPath(path).is_absolute():
            return False
        return is_outside(self.root / path, os.path.realpath(self.root))

    def find(self, name: str) -> str:
        r"""Return the path of the image that a table calls ``name``; ``name`` itself if there is
        none.

        The exact name wins. Backslashes, "./", Unicode composition, an encoding for URLs, case and
        a missing suffix may differ. Of a path in another folder, as many last parts count as one
        image has.
        """
        given = name.strip().replace("\\", "/").removeprefix("./")
        if given in self.listed:
            return given
        plain = unicodedata.normalize("NFC", given)
        for path in (plain, unicodedata.normalize("NFC", unquote(plain))):
            if path in self._by_name:
                return self._by_name[path]
            parts = [] if ".." in path.split("/") else path.split("/")
            for start in range(len(parts)):
                end = "/".join(parts[start:])
                found = [
                    image
                    for image in self._by_last_part.get(parts[-1], [])
                    if f"/{image}".endswith(f"/{end}")
                ]
                if found:
                    return found[0] if len(found) == 1 else plain
        found = self._by_spelling.get(plain.casefold(), [])
        return found[0] if len(found) == 1 else plain

    @cached_property
    def listed(self) -> frozenset[str]:
        """Paths of the images."""
        return frozenset(self.images)

    @cached_property
    def _by_name(self) -> dict[str, str]:
        return {unicodedata.normalize("NFC", image): image for image in self.images}

    @cached_property
    def _by_last_part(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, image in self._by_name.items():
            found.setdefault(name.rpartition("/")[2], []).append(image)
        return found

    @cached_property
    def _by_spelling(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, image in self._by_name.items():
            for spelling in (name, str(PurePosixPath(name).with_suffix(""))):
                found.setdefault(spelling.casefold(), []).append(image)
        return found


def list_folder(root: Path) -> Folder:
    """List the files below ``root``; hidden files, links to folders or out of ``root``, runs and
    copies of the page are left out.
    """
    found, left_out = list[str](), list[tuple[str, str]]()
    real = os.path.realpath(root)
    if not is_utf8(os.fspath(root)):
        raise ValueError(f"{printable(root)}: {NOT_UTF8}")

    def reason(name: str, *, is_folder: bool) -> str | None:
        if not is_utf8(name):
            return NOT_UTF8
        if is_folder and name.count("/") >= MAX_DEPTH:
            return DEEP
        is_bad_link = (root / name).is_symlink() and (is_folder or is_outside(root / name, real))
        return LINK if is_bad_link else None

    for path, folders, files in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if is_written(Path(path)):
            if path != os.fspath(root):
                folders.clear()
                continue
            folders[:] = [name for name in folders if name not in ("artifacts", "page")]
        inside = Path(path).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        for name in [*folders, *(name for name in files if not name.startswith("."))]:
            why = reason(prefix + name, is_folder=name in folders)
            if why is not None:
                left_out.append((printable(prefix + name), why))
            elif name not in folders:
                found.append(prefix + name)
        folders[:] = [name for name in folders if reason(prefix + name, is_folder=True) is None]
    return _classified(root, found, left_out)


def folder_of_names(root: Path, names: Iterable[str]) -> Folder:
    """Return the folder of named files, such as objects of a bucket, without the files that
    ``list_folder`` omits."""
    paths = [f"/{name}" for name in names if "/." not in f"/{name}"]
    runs = {
        f"{path}/".partition(f"/{part}/")[0]
        for path in paths
        for part in WRITTEN
        if f"/{part}/" in f"{path}/"
    }
    omitted = tuple(
        f"{run}/" if run else place for run in runs for place in ("/artifacts/", "/page/")
    )
    return _classified(root, [path[1:] for path in paths if not path.startswith(omitted)])


def _classified(
    root: Path, names: Iterable[str], left_out: Iterable[tuple[str, str]] = ()
) -> Folder:
    images, texts, others = list[str](), list[str](), list[str]()
    for name in sorted(names):
        _, dot, letters = name.rpartition(".")
        suffix = dot + letters.lower()
        (
            images if suffix in IMAGE_SUFFIXES else texts if suffix in TEXT_SUFFIXES else others
        ).append(name)
    return Folder(root, images, texts, others, sorted(left_out))


def is_utf8(name: str) -> bool:
    """Return whether the bytes of a file name are UTF-8; Python has other bytes as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def is_written(folder: Path) -> bool:
    """Return whether a folder has the files of a run, or of a static copy of the page."""
    return any((folder / name).exists() for name in WRITTEN)


def is_outside(path: Path, real_root: str) -> bool:
    """Return whether a path leads out of a resolved folder by a link."""
    return os.path.commonpath([os.path.realpath(path), real_root]) != real_root
