"""The files of a folder of images."""

import os
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from bifocal.datasets.base import RejectedEntry

IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm", ".jp2",
    ".avif", ".heic", ".heif",
})  # fmt: skip
TEXT_SUFFIXES = frozenset({".txt"})
WRITTEN = ("artifacts/dataset", "artifacts/onnx", "artifacts/collection", "page/gallery.js")
"""Contents of a run folder, and of a static copy of the page: their pictures are results."""
LINK = "a link out of the folder, or to another folder: copy the files"


@dataclass(frozen=True)
class Folder:
    """Files below a folder, by their paths with "/", sorted."""

    root: Path
    images: Sequence[str]
    texts: Sequence[str]  # files that may have the captions of an image
    others: Sequence[str] = ()
    links: Sequence[str] = ()  # that are left out: they lead out of the folder, or to another folder

    def rejected(self) -> list[RejectedEntry]:
        """Return the links that are left out, with the reason."""
        return [RejectedEntry("image", link, LINK) for link in self.links]

    def leads_out(self, path: str) -> bool:
        """Return whether a path leads out of the folder by a link; False for an absolute path and one with ".."."""
        parts = PurePosixPath(path).parts
        if path in self._listed or ".." in parts or PurePosixPath(path).is_absolute():
            return False
        return _is_outside(self.root / path, os.path.realpath(self.root))

    def find(self, name: str) -> str:
        r"""Return the path of the image that a table calls ``name``; ``name`` itself if there is none.

        Backslashes, "./", the folder's name, Unicode composition, case and a missing suffix may differ.
        """
        plain = unicodedata.normalize("NFC", name.strip().replace("\\", "/").removeprefix("./"))
        if plain in self._by_name:
            return self._by_name[plain]
        # A table beside the folder of the images often names only the files.
        found = self._by_last_part.get(plain) or self._by_spelling.get(plain.casefold(), [])
        return found[0] if len(found) == 1 else plain

    @cached_property
    def _listed(self) -> frozenset[str]:
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
    """List the files below ``root``; hidden files, links to folders or out of ``root``, runs and copies of the page are
    left out.
    """
    found, links = list[str](), list[str]()
    real = os.path.realpath(root)
    for path, folders, files in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if is_written(Path(path)):
            if path != os.fspath(root):
                folders.clear()
                continue
            folders[:] = [name for name in folders if name not in ("artifacts", "page")]
        inside = Path(path).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        links += [prefix + name for name in folders if (root / prefix / name).is_symlink()]
        for name in files:
            if name.startswith("."):
                continue
            file = root / prefix / name
            if file.is_symlink() and _is_outside(file, real):
                links.append(prefix + name)
                continue
            found.append(prefix + name)
    return _classified(root, found, links)


def folder_of_names(root: Path, names: Iterable[str]) -> Folder:
    """Return the folder of named files, such as objects of a bucket, without the files that ``list_folder`` omits."""
    paths = [f"/{name}" for name in names if "/." not in f"/{name}"]
    runs = {f"{path}/".partition(f"/{part}/")[0] for path in paths for part in WRITTEN if f"/{part}/" in f"{path}/"}
    omitted = tuple(f"{run}/" if run else place for run in runs for place in ("/artifacts/", "/page/"))
    return _classified(root, [path[1:] for path in paths if not path.startswith(omitted)])


def _classified(root: Path, names: Iterable[str], links: Iterable[str] = ()) -> Folder:
    images, texts, others = list[str](), list[str](), list[str]()
    for name in sorted(names):
        _, dot, letters = name.rpartition(".")
        suffix = dot + letters.lower()
        (images if suffix in IMAGE_SUFFIXES else texts if suffix in TEXT_SUFFIXES else others).append(name)
    return Folder(root, images, texts, others, sorted(links))


def is_written(folder: Path) -> bool:
    """Return whether a folder has the files of a run, or of a static copy of the page."""
    return any((folder / name).exists() for name in WRITTEN)


def _is_outside(path: Path, real_root: str) -> bool:
    return os.path.commonpath([os.path.realpath(path), real_root]) != real_root
