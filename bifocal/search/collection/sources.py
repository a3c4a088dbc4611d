"""Images for a collection, with captions and metadata: from a dataset, a folder, a table or an
archive."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path, PurePath, PurePosixPath
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bifocal.datasets.base import META
from bifocal.datasets.dataset import Dataset
from bifocal.datasets.formats.archives import remove_all_but, unpack
from bifocal.datasets.formats.caption_rows import check_whole_row
from bifocal.datasets.formats.caption_table import (
    SUFFIXES,
    CaptionTable,
    read_caption_table,
    read_tables,
    recognize,
)
from bifocal.datasets.formats.folder import ARCHIVES, Folder, list_folder
from bifocal.datasets.formats.sidecars import CAPTION, IMAGE, read_sidecars
from bifocal.datasets.remote_files import is_address
from bifocal.datasets.tables import METADATA_FILE, metadata_table
from bifocal.onnx.files import open_regular
from bifocal.onnx.image_limits import MAX_BYTES
from bifocal.onnx.images import open_header
from bifocal.onnx.metadata import date_of
from bifocal.search.collection.format import (
    DATE,
    FOLDER,
    SPLIT,
    TIME,
    UNKNOWN,
    UNPACKED,
    file_states,
)

EXPECTED = (
    "a folder of images, of tar shards or of a zip file, an archive, or a table (.csv, .tsv, "
    ".jsonl, .parquet)"
)


@dataclass(frozen=True)
class Entry:
    """An image to embed; ``image`` is relative to the root, None if the corpus publishes only
    features."""

    item_id: str
    image: str | None
    sha256: str | None = None
    size: tuple[int, int] | None = None


class RemoteImages(Protocol):
    """Images at an address, which are downloaded when they are opened."""

    def state(self, image: str) -> tuple[int, ...]:
        """Return four integers that change with the image."""

    def open(self, image: str) -> Path:
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
    dataset: Dataset | None = None
    remote: RemoteImages | None = None

    def open(self, entry: Entry) -> Path:
        """Return the file of an image; an image of a dataset at an address is downloaded."""
        if self.dataset is not None:
            return self.dataset.image_path(entry.item_id)
        if self.remote is not None:
            return self.remote.open(str(entry.image))
        assert self.folder is not None
        return self.folder / str(entry.image)

    def states(self, entries: Sequence[Entry]) -> NDArray[np.int64]:
        """Return the states (n, 4) of image files; unknown for copies, and for a dataset, which
        knows the hashes."""
        if self.remote is not None:
            return np.array([self.remote.state(str(entry.image)) for entry in entries], np.int64)
        if self.folder is None or self.unpacked or is_address(self.root):
            return np.zeros((len(entries), len(UNKNOWN)), np.int64)
        return file_states(self.folder, [str(entry.image) for entry in entries])

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
        dataset.image_address or folder, None, entries, sentences, metadata, dataset=dataset
    )


def files_source(source: Path, collection: Path, address: str | None = None) -> Source:
    """Return the images of a folder, a table or an archive; captions and metadata are optional.

    - A folder has images, or tar shards (WebDataset), or zip files. ``captions.*`` or
      ``metadata.*`` (csv, tsv, jsonl, parquet) in it, ``photo.txt`` and ``photo.json`` beside
      ``photo.jpg`` are read if they are there.
    - A table has one row per image, and names it in a column such as ``image`` or ``file_name``,
      relative to its own folder. Its captions are optional; other columns are metadata.
    - Archives are unpacked into the collection. ``address`` is the address of a local copy.
    """
    if source.suffix.lower() in SUFFIXES and source.is_file():
        folder, table = list_folder(source.parent), read_caption_table(source)
        root = (
            str(PurePosixPath(address).parent).replace(":/", "://", 1)
            if address
            else str(source.parent.resolve())
        )
        return _with_rows(root, folder, table, listed=True)
    archive = source.is_file() and source.suffix.lower() in ARCHIVES
    if not archive and not source.is_dir():
        raise ValueError(f"{source} is not a collection of images: expected {EXPECTED}")
    folder = Folder(source, [], []) if archive else list_folder(source)
    names = (
        []
        if archive
        else [name for name in folder.others if "/" not in name and name.lower().endswith(ARCHIVES)]
    )
    archives = [source] if archive else [source / name for name in names]
    rejected: list[tuple[str, str]] = []
    unpacked = not folder.images and bool(archives)
    if unpacked:
        target = collection / UNPACKED
        for path in archives:
            inside = target if len(archives) == 1 else target / path.name.partition(".")[0]
            rejected += [(entry.entry, entry.reason) for entry in unpack(path, inside)]
        folder = list_folder(target)
    if not folder.images:
        raise ValueError(f"{source} has no images: expected {EXPECTED}")
    root = UNPACKED if unpacked else address or str(source.resolve())
    table, unread = _beside(folder)
    return _with_rows(
        root, folder, table, listed=False, rejected=[*rejected, *unread], unpacked=unpacked
    )


def listed_source(folder: Folder, address: str, remote: RemoteImages) -> Source:
    """Return the images of a listed folder at an address; the copies of its tables and captions are
    below its root."""
    table, unread = _beside(folder)
    return replace(_with_rows(address, folder, table, listed=False, rejected=unread), remote=remote)


def _beside(folder: Folder) -> tuple[CaptionTable, list[tuple[str, str]]]:
    """Return the captions beside images, and the table that cannot be read as such: another program
    wrote it."""
    try:
        table = read_tables(folder)
        if table is not None:
            _image_column(table)
            return table, []
    except ValueError as error:
        return read_sidecars(folder), [("captions", f"not read: {error}")]
    return read_sidecars(folder), []


def _image_column(table: CaptionTable) -> str:
    column = IMAGE if IMAGE in table.columns else recognize(table.columns, "image")
    if column is None:
        raise ValueError(
            f"{table.path.name}: no column is recognized as the image's (image, file_name, "
            f"path ...); it has {', '.join(map(repr, table.columns))}"
        )
    return column


def _with_rows(
    root: str,
    folder: Folder,
    table: CaptionTable,
    *,
    listed: bool,
    rejected: Sequence[tuple[str, str]] = (),
    unpacked: bool = False,
) -> Source:
    """Return a source with the rows of a table; with ``listed``, it has only images that the rows
    name."""
    folder.log_unread()
    column, caption = (
        _image_column(table),
        CAPTION if CAPTION in table.columns else recognize(table.columns, "caption"),
    )
    problems = [
        *rejected,
        *((entry.entry, entry.reason) for entry in (*folder.rejected(), *table.rejected)),
    ]
    missing = list[str]()
    captions: dict[str, list[str]] = {}
    values: dict[str, Mapping[str, Any]] = {}
    for place, row in table.rows:
        name = row.get(column)
        if not isinstance(name, str) or not name.strip():
            problems.append((place, f"{column} is {name!r}: expected the path of an image"))
            continue
        image = folder.find(name)
        path = PurePath(image)
        if is_address(image) or path.is_absolute() or ".." in path.parts or folder.leads_out(image):
            problems.append((place, f"{image!r} is outside the folder of the table"))
            continue
        if not listed and image not in folder.listed:
            missing.append(f"{place}: {name!r}")
            continue
        texts = _texts(row.get(caption)) if caption else []
        try:
            check_whole_row(texts, table.delimiter, folder)
        except ValueError as error:
            problems.append((place, str(error)))
            continue
        values.setdefault(image, row)
        captions.setdefault(image, []).extend(texts)
    if missing:
        reason = (
            f"{len(missing):,} of {len(table.rows):,} rows name no image of the folder, such "
            f"as {missing[0]}"
        )
        problems.append((table.path.name, reason))
    others = [name for name in table.columns if name not in (column, caption)]
    table.set_types(others)
    names = list(values) if listed else folder.images
    metadata = metadata_table("item_id", names, values, others) if others else None
    entries = [Entry(name, name) for name in names]
    return Source(root, folder.root, entries, captions, metadata, problems, unpacked)


def _texts(value: Any) -> list[str]:
    texts = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return [text.strip() for text in texts if isinstance(text, str) and text.strip()]


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
        if position in known:
            return known[position]
        file = source.open(entries[position])
        taken = date_taken(file)
        if taken is None and own_times and file.is_file():
            return datetime.fromtimestamp(int(file.stat().st_mtime))
        return taken

    missing: list[tuple[str, Callable[[int], Any], pa.DataType]] = [
        (FOLDER, folder, pa.string()),
        (DATE, date, TIME),
    ]
    for name, value_of, kind in missing:
        if META + name not in table.column_names:
            values = [value_of(place[item_id]) if item_id in place else None for item_id in names]
            table = table.append_column(META + name, pa.array(values, kind))
    return table


def date_taken(file: Path) -> datetime | None:
    """Return the time of a photograph in its EXIF data; None for a file without a valid one."""
    try:
        with open_regular(file, MAX_BYTES) as opened, open_header(opened) as image:
            return date_of(image)
    except ValueError:
        return None
