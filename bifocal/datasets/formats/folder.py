"""The files of a folder of images."""

import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm", ".jp2",
    ".avif", ".heic", ".heif",
})  # fmt: skip
TEXT_SUFFIXES = frozenset({".txt"})


@dataclass(frozen=True)
class Folder:
    """Files below a folder, by their paths with "/", sorted."""

    root: Path
    images: Sequence[str]
    texts: Sequence[str]  # files that may have the captions of an image
    others: Sequence[str] = ()

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
    """List the files below ``root``; hidden files, and folders that are links, are left out."""
    images, texts, others = list[str](), list[str](), list[str]()
    for path, folders, files in os.walk(root, followlinks=False):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(path).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        for name in files:
            if name.startswith("."):
                continue
            _, dot, letters = name.rpartition(".")
            suffix = dot + letters.lower()
            listed = images if suffix in IMAGE_SUFFIXES else texts if suffix in TEXT_SUFFIXES else others
            listed.append(prefix + name)
    return Folder(root, sorted(images), sorted(texts), sorted(others))
