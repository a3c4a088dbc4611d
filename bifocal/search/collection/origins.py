"""Folder and date of image files, as metadata of a collection without its own columns of these names."""

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath

import pyarrow as pa

from bifocal.datasets.remote_files import is_address
from bifocal.onnx.image_header import open_header
from bifocal.search.collection.format import DATE, FOLDER, META
from bifocal.search.collection.sources import Entry, Source
from bifocal.search.collection.update import CollectionUpdate

TIME = pa.timestamp("ms")  # Parquet has no seconds
EXIF, TAKEN, CHANGED = 0x8769, 0x9003, 0x0132
"""EXIF tags: the table of photographs, the time of the photograph in it, and the time of the last change."""


def with_origins(source: Source, entries: Sequence[Entry], update: CollectionUpdate) -> pa.Table | None:
    """Return the metadata of a source with the folder and the date of each image file.

    The date is the time of the photograph in EXIF, else of the last change of the file; files of archives and copies
    of files at an address have only the first. Unchanged files keep their date, so they are not opened.
    """
    if source.folder is None:
        return source.metadata
    table = source.metadata
    if table is None:
        table = pa.table({"item_id": pa.array([entry.item_id for entry in entries], pa.string())})
    names: list[str] = table.column("item_id").to_pylist()
    place = {entry.item_id: position for position, entry in enumerate(entries)}
    missing = {FOLDER: _folder_of(entries), DATE: _date_of(source, entries, update)}
    for name, value_of in missing.items():
        if name not in table.column_names:
            values = [value_of(place[item_id]) if item_id in place else None for item_id in names]
            table = table.append_column(name, pa.array(values, pa.string() if name == FOLDER else TIME))
    return table


def date_taken(file: Path) -> datetime | None:
    """Return the time of a photograph in its EXIF data; None for a file without it."""
    try:
        with file.open("rb") as opened, open_header(opened) as image:
            exif = image.getexif()
            text = exif.get_ifd(EXIF).get(TAKEN) or exif.get(CHANGED)
        return datetime.strptime(str(text)[:19], "%Y:%m:%d %H:%M:%S")
    except (OSError, ValueError):
        return None


def _folder_of(entries: Sequence[Entry]) -> Callable[[int], str]:
    def folder(position: int) -> str:
        parent = str(PurePosixPath(str(entries[position].image)).parent)
        return "" if parent == "." else parent

    return folder


def _date_of(source: Source, entries: Sequence[Entry], update: CollectionUpdate) -> Callable[[int], datetime | None]:
    own_times = not source.unpacked and not is_address(source.root)
    former: list[datetime | None] | None = None
    if update.collection is not None and META + DATE in update.collection.items.column_names:
        column = update.collection.items.column(META + DATE)
        former = column.to_pylist() if column.type == TIME else None

    def date(position: int) -> datetime | None:
        if former is not None and update.unchanged[position]:
            return former[int(update.rows[position])]
        file = source.open(entries[position])
        taken = date_taken(file)
        if taken is None and own_times and file.is_file():
            return datetime.fromtimestamp(int(file.stat().st_mtime))
        return taken

    return date
