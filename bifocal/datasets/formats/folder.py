"""The files of a folder of images."""

import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from bifocal.datasets.base import RejectedEntry
from bifocal.durable.inside import exists, is_inside
from bifocal.progress import log_line, printable

IMAGE_SUFFIXES = frozenset({
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm", ".jp2",
    ".avif", ".heic", ".heif",
})  # fmt: skip
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
ARCHIVES = (".zip", ".tar", ".tgz", ".gz")
READ = (*IMAGE_SUFFIXES, *TABLES, *ARCHIVES, ".txt", ".json")
"""Ends of the names of files that are read."""
ADVICE = {
    (".txt", ".json", ".ndjson", ".caption", ".cap", ".token", ".xmp", ".xlsx", ".ods", *TABLES):
        "captions are a table called captions or metadata, or photo.txt or photo.json beside photo.jpg",
    (*ARCHIVES, ".zst", ".bz2", ".xz", ".7z", ".rar"):
        "zip and tar files are read in a folder without images: unpack others",
    (".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".psd", ".svg", ".jxl", ".mov", ".mp4", ".img"):
        "save photographs as JPEG or PNG",
}  # fmt: skip
"""What to do with files that were not used, by the ends of their names."""
WRITTEN = (
    "artifacts/collection.partial",
    "artifacts/dataset",
    "artifacts/onnx",
    "artifacts/collection",
    "page/gallery.js",
)
"""Contents of a run folder, and of a copy of the page of earlier versions: results."""
BINS = frozenset({
    "@eadir", "@tmp", "#recycle", "#snapshot", "@recycle", "@recently-snapshot", "$recycle.bin", "recycler",
    "system volume information", "lost+found", "__macosx",
})  # fmt: skip
"""Folders of systems with thumbnails and deleted files, in lower case."""
BIN, HIDDEN = "thumbnails or deleted files of a system", "hidden: its name begins with a dot"
LINK = "a link out of the folder, or to another folder: copy the files, or follow links"
TWICE = "a link to a folder that is listed already"
NOT_UTF8 = "its name is not UTF-8: rename it"
MAX_DEPTH, DEEP = 100, "in more than 100 folders: move it up"
SHOWN = 5
"""Types of files to name."""


@dataclass(frozen=True)
class Folder:
    """Files below a folder, by their paths with "/", sorted."""

    root: Path
    images: Sequence[str]
    others: Sequence[str] = ()
    left_out: Sequence[RejectedEntry] = ()
    unknown: Sequence[str] = ()  # folders that cannot be listed
    follow_links: bool = False  # the user has said that all links are their own

    @cached_property
    def listed(self) -> frozenset[str]:
        """Paths of the images."""
        return frozenset(self.images)

    def below(self, place: str) -> "Folder":
        """Return the images below a folder such as "a/", by their paths in it."""
        return replace(
            self,
            root=self.root / place,
            images=[name.removeprefix(place) for name in self.images if name.startswith(place)],
        )

    def has(self, name: str) -> bool:
        """Return whether a path names an image, or another file that is in the folder."""
        if name in self.listed:
            return True
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not is_utf8(name) or "\0" in name:
            return False
        if str(path) != name:  # the image has another name: "./a.jpg" is "a.jpg"
            return False
        file = self.root / name
        return (
            exists(file)
            and file.is_file()
            and (self.follow_links or is_inside(self.root, file, caches=True))
        )


def list_folder(root: Path, *, follow_links: bool = False) -> Folder:
    """List the files below ``root``; hidden files, links to folders or out of ``root``, runs,
    copies of the page, thumbnails and recycle bins are left out.

    Links to a cache of the folder's own project are its files. With ``follow_links``, all links
    are.
    """
    seen = {os.path.realpath(root)}
    found, left_out, unknown = list[str](), list[RejectedEntry](), list[str]()
    if not is_utf8(os.fspath(root)):
        raise ValueError(f"{printable(root)}: {NOT_UTF8}")

    def leave_out(name: str, reason: str, *, is_image: bool) -> None:
        left_out.append(RejectedEntry("image", printable(name), reason, intentional=not is_image))

    def fail(error: OSError) -> None:
        name = os.path.relpath(error.filename, root)
        if name == ".":
            raise error
        unknown.append(name)
        leave_out(name, f"cannot be listed: {error.strerror}", is_image=True)

    def reason(name: str, *, is_folder: bool) -> str | None:
        if sys.getfilesystemencoding() != "utf-8":
            name.encode("ascii")  # another letter would be another name
        if not is_utf8(name):
            return NOT_UTF8
        if is_folder and name.count("/") >= MAX_DEPTH:
            return DEEP
        if is_folder and (why := _omitted(PurePosixPath(name).name)):
            return why
        path = root / name
        if follow_links and is_folder:
            real = os.path.realpath(path)
            if real in seen:
                return TWICE
            seen.add(real)
            return None
        is_seen = os.path.lexists(path)  # by this user
        if follow_links or not is_seen or not path.is_symlink() or not exists(path):
            return None
        return None if not is_folder and is_inside(root, path, caches=True) else LINK

    for path, folders, files in os.walk(root, onerror=fail, followlinks=follow_links):
        folders.sort()
        if is_written(Path(path)):
            if path != os.fspath(root):
                folders.clear()
                continue
            folders[:] = [name for name in folders if name not in ("artifacts", "page")]
        inside = Path(path).relative_to(root).as_posix()
        prefix = "" if inside == "." else f"{inside}/"
        for name in list(folders):
            if why := reason(prefix + name, is_folder=True):
                folders.remove(name)
                leave_out(prefix + name, why, is_image=why in (DEEP, NOT_UTF8))
            elif name.lower().endswith((*TABLES, ".txt", ".json")):
                found.append(prefix + name)  # what a file of this name has said is not gone
        for name in files:
            if name.startswith("."):
                continue
            if why := reason(prefix + name, is_folder=False):
                leave_out(prefix + name, why, is_image=_is_image(name))
            else:
                found.append(prefix + name)
    return replace(_classified(root, found, left_out, unknown), follow_links=follow_links)


def folder_of_names(root: Path, names: Iterable[str]) -> Folder:
    """Return the folder of named files, such as objects of a bucket, without the files that
    ``list_folder`` omits."""
    paths = [f"/{name}" for name in names if not PurePosixPath(name).name.startswith(".")]
    runs = {
        f"{path}/".partition(f"/{part}/")[0]
        for path in paths
        for part in WRITTEN
        if f"/{part}/" in f"{path}/"
    }
    omitted = tuple(
        f"{run}/" if run else place for run in runs for place in ("/artifacts/", "/page/")
    )
    kept, bins = list[str](), dict[str, RejectedEntry]()
    for path in (path for path in paths if not path.startswith(omitted)):
        parts = path[1:].split("/")
        place = next((n for n, part in enumerate(parts[:-1]) if _omitted(part)), None)
        if place is None:
            kept.append(path[1:])
            continue
        name = printable("/".join(parts[: place + 1]))
        reason = str(_omitted(parts[place]))
        bins[name] = RejectedEntry("image", name, reason, intentional=True)
    return _classified(root, kept, bins.values())


def _omitted(folder: str) -> str | None:
    """Return why a folder of a name is left out."""
    return HIDDEN if folder.startswith(".") else BIN if folder.lower() in BINS else None


def _classified(
    root: Path,
    names: Iterable[str],
    left_out: Iterable[RejectedEntry] = (),
    unknown: Iterable[str] = (),
) -> Folder:
    images, others = list[str](), list[str]()
    for name in sorted(names):
        (images if _is_image(name) else others).append(name)
    ordered = sorted(left_out, key=lambda entry: entry.entry)
    return Folder(root, images, others, ordered, sorted(unknown))


def _is_image(name: str) -> bool:
    _, dot, letters = name.rpartition(".")
    return dot + letters.lower() in IMAGE_SUFFIXES


def unused_files(folder: Folder, used: Collection[str]) -> list[str]:
    """Return a sentence for each kind of files that were not used, the most frequent first."""
    unused = [name for name in folder.others if name not in used]
    kinds = Counter(PurePosixPath(name).suffix.lower() or "other" for name in unused)
    lines = []
    for kind, count in kinds.most_common(SHOWN):
        first = next(
            name for name in unused if (PurePosixPath(name).suffix.lower() or "other") == kind
        )
        advice = next((f": {text}" for ends, text in ADVICE.items() if kind in ends), "")
        files = f"{kind} file was" if count == 1 else f"{kind} files were"
        lines.append(f"{count:,} {files} not used, such as {printable(first)}{advice}")
    others = kinds.total() - sum(count for _, count in kinds.most_common(SHOWN))
    return [*lines, *([f"{others:,} files of other types were not used"] if others else [])]


def log_reasons(entries: Iterable[RejectedEntry]) -> None:
    """Print the entries that are left out on purpose, by their reasons."""
    own = [entry for entry in entries if entry.intentional]
    for reason, count in Counter(entry.reason for entry in own).items():
        first = next(entry.entry for entry in own if entry.reason == reason)
        log_line(f"{count:,} left out, such as {first}: {reason}")


def is_utf8(name: str) -> bool:
    """Return whether the bytes of a file name are UTF-8; Python has other bytes as surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def is_written(folder: Path) -> bool:
    """Return whether a folder has the files of a run, or of a static copy of the page."""
    return any(os.access(folder / name, os.F_OK) for name in WRITTEN)
