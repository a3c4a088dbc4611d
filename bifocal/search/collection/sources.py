"""Images for a collection, with captions and metadata: from a dataset, a folder, a table or an
archive."""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from io import BufferedReader
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.datasets.base import META, RejectedEntry
from bifocal.datasets.dataset import Dataset
from bifocal.datasets.formats.archives import remove_all_but
from bifocal.datasets.formats.caption_rows import NO_IMAGE
from bifocal.datasets.formats.caption_table import REQUIRED
from bifocal.datasets.formats.folder import Folder
from bifocal.datasets.formats.user_files import (
    Reading,
    UserFiles,
    read_listing,
    read_user_files,
)
from bifocal.datasets.remote_files import is_address
from bifocal.datasets.tables import METADATA_FILE, metadata_table
from bifocal.durable import open_inside
from bifocal.onnx.files import open_regular
from bifocal.onnx.image_limits import MAX_BYTES
from bifocal.onnx.images import open_header
from bifocal.onnx.metadata import date_of
from bifocal.search.collection.format import (
    DATE,
    FOLDER,
    ITEMS_SCHEMA,
    SPLIT,
    TIME,
    UNKNOWN,
    UNPACKED,
    file_states,
)

HOW = Reading(roles=REQUIRED)
"""Splits and phrases of a table are metadata of a collection."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An image to embed; ``image`` is relative to the root, None if the corpus publishes only
    features."""

    item_id: str
    image: str | None
    sha256: str | None = None
    size: tuple[int, int] | None = None
    kept: bool = False  # its image is unknown: it has its former vector
    etag: str = ""  # of an object at an address
    length: int = 0  # of an object in bytes


class RemoteImages(Protocol):
    """Images at an address, which are downloaded when they are opened."""

    def state(self, entry: Entry) -> tuple[int, ...]:
        """Return four integers that change with the image."""

    def open(self, entry: Entry) -> Path:
        """Return the local copy of an image."""


@dataclass(frozen=True)
class Source:
    """Images to embed; ``root`` is the name of their place in ``collection.json``, ``folder`` has
    the files, unless ``dataset`` or ``remote`` opens them.
    """

    root: str
    folder: Path | None
    entries: Sequence[Entry]
    captions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    metadata: pa.Table | None = None
    rejected: Sequence[tuple[str, str]] = ()
    unpacked: bool = False
    unknown: Sequence[str] = ()  # folders that cannot be listed
    unread: Sequence[str] = ()  # tables and archives that were not read whole
    by_table: bool = False  # a table names the images
    unread_captions: Sequence[str] = ()  # images whose text or JSON file cannot be read
    prune: bool = True  # many images may be removed together
    follow_links: bool = False
    dataset: Dataset | None = None
    remote: RemoteImages | None = None
    gone: pa.Table = field(default_factory=ITEMS_SCHEMA.empty_table)  # items that are not listed
    is_whole: bool = True  # not the share of a shard

    def opener(self, entry: Entry) -> Callable[[], BufferedReader]:
        """Return the function that opens the file of an image, once; one at an address is
        downloaded first."""
        if self.dataset is not None:
            self.dataset.image_path(entry.item_id)
            return partial(self.dataset.open, entry.item_id)
        name, links = str(entry.image), self.follow_links
        if self.remote is not None:
            copy = self.remote.open(entry)
            return lambda: copy.open("rb")
        assert self.folder is not None
        return partial(open_inside, self.folder, name, caches=True, follow_links=links)

    def digest(self, entry: Entry) -> str | None:
        """Return the SHA-256 of the file of an image; None if it cannot be read."""
        with suppress(ValueError), open_regular(self.opener(entry), MAX_BYTES) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
        return None

    def states(self, entries: Sequence[Entry]) -> NDArray[np.int64]:
        """Return the states (n, 4) of image files; unknown for copies, and for a dataset, which
        knows the hashes."""
        if self.remote is not None:
            states = (UNKNOWN if entry.kept else self.remote.state(entry) for entry in entries)
            return np.array([*states], np.int64).reshape(-1, len(UNKNOWN))
        if self.folder is None or self.unpacked or is_address(self.root):
            return np.zeros((len(entries), len(UNKNOWN)), np.int64)
        found = file_states(self.folder, [str(entry.image) for entry in entries])
        found[[entry.kept for entry in entries]] = UNKNOWN  # their files are not read
        return found

    def keep(self, entries: Sequence[Entry]) -> None:
        """Delete all other files of unpacked archives."""
        if self.unpacked and self.folder is not None:
            remove_all_but(self.folder, [entry.image for entry in entries])


def dataset_source(directory: Path, dataset: Dataset, place: str) -> Source:
    """Return the images of a dataset; ``place`` is its path relative to the collection, where both
    are used later."""
    images = dataset.images
    entries = [
        Entry(image_id, path if isinstance(path, str) else None, sha256, (width, height))
        for image_id, path, sha256, width, height in zip(
            *(images[name].tolist() for name in ("image_id", "path", "sha256", "width", "height")),
            strict=True,
        )
    ]
    file = directory / METADATA_FILE
    if file.is_file():
        own = pq.read_table(file)
        metadata = own.rename_columns(["item_id", *own.column_names[1:]])
    else:
        metadata = pa.table({"item_id": images["image_id"].tolist()})
    if META + SPLIT not in metadata.column_names:
        splits = dict(zip(images["image_id"], images["split"], strict=True))
        names = metadata.column("item_id").to_pylist()
        metadata = metadata.append_column(
            META + SPLIT, pa.array([splits[name] for name in names], pa.string())
        )
    captions = dataset.captions.groupby("image_id", sort=False)["text"].agg(list)
    root = dataset.image_root.resolve()
    # Relative, if the images are in the artifact: a run folder may be moved.
    inside = root.is_relative_to(directory.resolve())
    folder = f"{place}/{root.relative_to(directory.resolve()).as_posix()}" if inside else str(root)
    sentences = {str(image_id): list(texts) for image_id, texts in captions.items()}
    return Source(
        dataset.image_address or folder,
        None,
        entries,
        sentences,
        metadata,
        dataset=dataset,
        follow_links=dataset.follow_links,
    )


def files_source(
    source: Path, collection: Path, address: str | None = None, *, follow_links: bool = False
) -> Source:
    """Return the images of a folder, a table or an archive; captions and metadata are optional.

    - A folder has images, or tar shards (WebDataset), zip files, or Parquet files with images.
      ``captions.*`` or ``metadata.*`` (csv, tsv, jsonl, parquet) in it and below it, ``photo.txt``
      and ``photo.json`` beside ``photo.jpg`` are read if they are there.
    - A table has one row per image, and names it in a column such as ``image`` or ``file_name``,
      relative to its own folder. Its captions are optional; other columns are metadata.
    - Archives are unpacked into the collection. ``address`` is the address of a local copy.
    """
    how = replace(HOW, follow_links=follow_links)
    files = read_user_files(source, collection / UNPACKED, how)
    own = source.parent if source.is_file() else source
    root = str(own.resolve())
    if files.is_unpacked:
        root = UNPACKED
    elif address:
        parent = str(PurePosixPath(address).parent).replace(":/", "://", 1)
        root = parent if source.is_file() else address
    return _source(files, root)


def listed_source(
    folder: Folder, address: str, objects: Mapping[str, Entry], remote: RemoteImages
) -> Source:
    """Return the images of a listed folder at an address by its ``objects``; the copies of its
    tables and captions are below its root."""
    source = _source(read_listing(folder, HOW), address)
    entries = [objects[entry.item_id] for entry in source.entries]
    return replace(source, entries=entries, remote=remote)


def _source(files: UserFiles, root: str) -> Source:
    rows = files.rows
    problems = [
        (entry.entry, entry.reason)
        for entry in files.rejected
        if not entry.intentional or entry.kind == "value"
    ]
    by_table: dict[str, list[RejectedEntry]] = {}
    for entry in rows.missing:
        by_table.setdefault(re.split(", (?:line|row) ", entry.entry)[0], []).append(entry)
    for table, missing in by_table.items():
        first = f"{missing[0].entry}: {missing[0].reason.removesuffix(NO_IMAGE).strip()}"
        rows_ = "1 row names" if len(missing) == 1 else f"{len(missing):,} rows name"
        problems.append((table, f"{rows_} no image of the folder, such as {first}"))
    captions: dict[str, list[str]] = {}
    for image, text in rows.captions:
        captions.setdefault(image, []).append(text)
    values, columns = rows.metadata, dict(rows.columns)
    if SPLIT not in columns and any(rows.splits.values()):
        columns[SPLIT] = None
        values = {image: own | {SPLIT: rows.splits.get(image)} for image, own in values.items()}
    metadata = metadata_table("item_id", files.images, values, columns) if columns else None
    entries = [Entry(name, name) for name in files.images]
    return Source(
        root,
        files.folder.root,
        entries,
        captions,
        metadata,
        problems,
        files.is_unpacked,
        files.folder.unknown,
        files.unread,
        files.by_table,
        files.unread_captions,
        follow_links=files.folder.follow_links,
    )


def with_origins(
    source: Source,
    entries: Sequence[Entry],
    known: Mapping[int, datetime | None] = MappingProxyType({}),
) -> pa.Table | None:
    """Return the metadata of a source in columns ``meta.NAME``, with ``folder`` and ``date`` of
    each image file, unless the user has columns of these names.

    The date is the time of the photograph in EXIF, else of the last change of the file; files of
    archives and copies of files at an address have only the first. ``known`` has dates by position
    in ``entries``: these files are not opened.
    """
    if source.folder is None:
        return source.metadata
    table = source.metadata
    if table is None:
        table = pa.table({"item_id": pa.array([entry.item_id for entry in entries], pa.string())})
    names: list[str] = table.column("item_id").to_pylist()
    place = {entry.item_id: position for position, entry in enumerate(entries)}
    own_times = not source.unpacked and not is_address(source.root)

    def folder(position: int) -> str:
        parent = str(PurePosixPath(str(entries[position].image)).parent)
        return "" if parent == "." else parent

    def date(position: int) -> datetime | None:
        if position in known or entries[position].kept:
            return known.get(position)
        return date_taken(source.opener(entries[position]), or_changed=own_times)

    missing: list[tuple[str, Callable[[int], Any], pa.DataType]] = [
        (FOLDER, folder, pa.string()),
        (DATE, date, TIME),
    ]
    for name, value_of, kind in missing:
        if META + name not in table.column_names:
            values = [value_of(place[item_id]) if item_id in place else None for item_id in names]
            table = table.append_column(META + name, pa.array(values, kind))
    return table


def date_taken(
    opener: Callable[[], BufferedReader], *, or_changed: bool = False
) -> datetime | None:
    """Return the EXIF time of a photograph; without one, the time of the last change if
    ``or_changed``; else None."""
    with suppress(ValueError), open_regular(opener, MAX_BYTES) as file:
        with suppress(ValueError), open_header(file) as image:
            if (taken := date_of(image)) is not None:
                return taken
        if or_changed:
            return datetime.fromtimestamp(int(os.fstat(file.fileno()).st_mtime))
    return None
