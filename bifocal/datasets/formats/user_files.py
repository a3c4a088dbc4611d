"""A folder, an archive or a table of a user: its images, captions and values, and what was left
out."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bifocal.datasets.base import RejectedEntry
from bifocal.datasets.formats.archives import unpack, unpack_embedded
from bifocal.datasets.formats.caption_rows import CaptionRows
from bifocal.datasets.formats.caption_table import (
    REQUIRED,
    ROLES,
    CaptionColumns,
    CaptionTable,
    choose_columns,
)
from bifocal.datasets.formats.folder import (
    ARCHIVES,
    TABLES,
    Folder,
    list_folder,
    log_reasons,
    unused_files,
)
from bifocal.datasets.formats.sidecars import CAPTION, IMAGE, read_sidecars
from bifocal.datasets.formats.table_files import is_embedded, read_caption_table, tables_in
from bifocal.progress import log_line

EXPECTED = (
    "images and captions.csv, .tsv, .jsonl or .parquet, or photo.txt beside photo.jpg, or tar "
    "shards, or a zip file, or Parquet files with images"
)


@dataclass(frozen=True)
class Reading:
    """How a user's files are read: what the tables are called, and whether captions are needed."""

    captions: str | None = None  # path of the table below the folder
    columns: Mapping[str, str | None] = field(default_factory=dict)  # by role
    roles: Sequence[str] = ROLES
    group_column: str | None = None
    encoding: str = "utf-8"
    needs_captions: bool = False
    follow_links: bool = False


@dataclass(frozen=True)
class UserFiles:
    """Images and rows of a user's files; ``folder`` has the files, unpacked ones of an archive."""

    folder: Folder
    rows: CaptionRows
    images: Sequence[str]  # of the folder, or only those that a table names
    rejected: Sequence[RejectedEntry]
    is_unpacked: bool = False
    unread: Sequence[str] = ()  # tables and archives that could not be read, or not whole
    by_table: bool = False  # a table was named, and names the images
    unread_captions: Sequence[str] = ()  # images whose text or JSON file cannot be read


def read_user_files(source: Path, target: Path, how: Reading) -> UserFiles:
    """Read a folder, an archive or a table; archives are unpacked to ``target``.

    Raises:
        ValueError: there is no image; or captions are needed, and there are none.
    """
    suffix = source.suffix.lower() if source.is_file() else ""
    if not source.is_dir() and suffix not in (*ARCHIVES, *TABLES):
        raise ValueError(f"{source} is not a collection of images: expected {EXPECTED}")
    is_archive = suffix in ARCHIVES or is_embedded(source)
    if suffix and not is_archive:
        listed = list_folder(source.parent, follow_links=how.follow_links)
        reader = _Reader(source, listed, how)
        reader.tables.append(read_caption_table(source.parent, source.name, how.encoding))
        return reader.finish(is_table=True)
    folder = Folder(source.parent, [], [source.name])
    if not is_archive:
        folder = list_folder(source, follow_links=how.follow_links)
    reader = _Reader(source, folder, how)
    if archives := archives_in(folder):
        reader.unpack(archives, target)
    reader.read_tables(how.captions)
    return reader.finish()


def read_listing(folder: Folder, how: Reading) -> UserFiles:
    """Read a listed folder, such as one of objects with local copies of the texts."""
    reader = _Reader(folder.root, folder, how)
    reader.read_tables()
    return reader.finish()


def archives_in(folder: Folder) -> list[str]:
    """Return the archives to read in a folder without images."""
    if folder.images:
        return []
    return [
        name
        for name in folder.others
        if ("/" not in name and name.lower().endswith(ARCHIVES)) or is_embedded(folder.root / name)
    ]


class _Reader:
    """Files of a user while they are read."""

    def __init__(self, source: Path, folder: Folder, how: Reading) -> None:
        self.source, self.folder, self.how = source, folder, how
        self.tables, self.used = list[CaptionTable](), set[str]()
        self.rejected, self.unread, self.unused = list(folder.left_out), list[str](), list[str]()
        self.is_unpacked = self.is_tar = False

    def unpack(self, archives: Sequence[str], target: Path) -> None:
        """Unpack the archives of a folder, each into a folder of its name; tables beside them are
        read too."""
        outer, problem, self.is_unpacked = self.folder, ValueError(), True
        for name in archives:
            inside = f"{name}/" if self.source.is_dir() else ""
            try:
                if name.lower().endswith(".parquet"):
                    table = read_caption_table(outer.root, name)
                    self.rejected += unpack_embedded(outer.root, table, target, inside)
                    self.tables.append(table)
                else:
                    self.is_tar |= not name.lower().endswith(".zip")
                    self.rejected += unpack(outer.root / name, target / inside)
            except ValueError as error:
                problem = error
                self.unread.append(name)
                self.rejected.append(RejectedEntry("image", name, str(error)))
                shutil.rmtree(target / inside, ignore_errors=True)
        if len(self.unread) == len(archives):
            raise problem
        self.used.update(archives)
        if self.source.is_dir():
            self.read_tables()
            for table in self.tables:
                if len(archives) == 1 and table.name not in archives:
                    table.inside = f"{archives[0]}/"
            self.unused = unused_files(outer, self.used)
        self.used = set(archives)  # folders have their names
        target.mkdir(parents=True, exist_ok=True)
        self.folder = list_folder(target)
        self.rejected += self.folder.left_out

    def read_tables(self, named: str | None = None) -> None:
        """Read the caption tables of the folder, or only the named one."""
        if named is not None and not named.lower().endswith(TABLES):
            raise ValueError(f"captions is {named!r}, expected a name that ends in {TABLES}")
        if named is not None and not self.folder.has(named):
            raise ValueError(f"captions is {named!r}, but {self.folder.root} has no such file")
        names = tables_in(self.folder) if named is None else [named]
        for name in (name for name in names if name not in self.used):
            self.used.add(name)
            try:
                self.tables.append(read_caption_table(self.folder.root, name, self.how.encoding))
            except ValueError as error:
                if self.how.needs_captions and not (self.folder.root / name).is_dir():
                    raise
                self.unread.append(name)
                self.rejected.append(RejectedEntry("caption", name, f"not read: {error}"))

    def finish(self, *, is_table: bool = False) -> UserFiles:
        """Return the images and rows; print what was not used."""
        rows, how, folder, unread_captions = CaptionRows(), self.how, self.folder, list[str]()
        if not folder.images and not is_table:
            self.unused += unused_files(folder, ())
            raise ValueError(self._without(f"has no images: expected {EXPECTED}", self.rejected))
        chosen = self._columns()
        if is_table and not chosen:
            raise ValueError(self._without("cannot be used", self.rejected))
        for table, columns in chosen:
            needs = how.needs_captions and columns.caption is not None
            rows.add_table(table, columns, folder, how.group_column, needs_captions=needs)
        if not is_table:
            has_captions = any(columns.caption for _, columns in chosen)
            beside, used = read_sidecars(folder, is_captioned=has_captions, by_key=self.is_tar)
            roles = {"image": IMAGE, "caption": CAPTION}
            columns = choose_columns(beside.columns, roles, "", REQUIRED, REQUIRED)
            unread_captions = [each.entry for each in beside.rejected if not each.intentional]
            rows.add_table(beside, columns, folder, needs_captions=how.needs_captions)
            self.unused += unused_files(folder, self.used | used)
        if how.needs_captions and not (chosen or rows.captions):
            reasons = [*rows.rejected, *self.rejected]
            raise ValueError(
                self._without(
                    f"has no captions: it must contain {EXPECTED}; 'bifocal index' searches images "
                    "without captions",
                    reasons,
                )
            )
        for line in self.unused:
            log_line(line)
        rejected = [*self.rejected, *rows.rejected]
        log_reasons(rejected)
        named = [image for image in rows.splits if image not in folder.listed]
        images = list(rows.splits) if is_table else [*folder.images, *named]
        if not images:
            reasons = [*rejected, *rows.missing]
            raise ValueError(self._without("names no image of its folder", reasons))
        whole = {table.name for table, _ in chosen if table.rows and not table.rejected}
        unread = [*self.unread, *(t.name for t in self.tables if t.name not in whole)]
        return UserFiles(
            folder, rows, images, rejected, self.is_unpacked, unread, is_table, unread_captions
        )

    def _columns(self) -> list[tuple[CaptionTable, CaptionColumns]]:
        """Return the tables with a column of images; captions may be in one of several tables."""
        how, found = self.how, list[tuple[CaptionTable, CaptionColumns]]()
        is_only = len(self.tables) == 1
        required = REQUIRED if how.needs_captions and is_only else REQUIRED[:1]
        problem: ValueError | None = None
        for table in self.tables:
            own = {
                role: name for role, name in how.columns.items() if is_only or name in table.columns
            }
            try:
                found.append(
                    (table, choose_columns(table.columns, own, table.name, required, how.roles))
                )
            except ValueError as error:
                problem = error
                self.rejected.append(
                    RejectedEntry(
                        "caption", table.name, f"not read: {error}", intentional=not is_only
                    )
                )
        names = [table.name for table, columns in found if columns.caption]
        if how.needs_captions and self.tables and not names:
            raise problem or ValueError(f"{self.source}: no table has a column of captions")
        if len({PurePosixPath(name).parent for name in names}) < len(names):
            problem = ValueError(
                f"{self.source} has several tables, {', '.join(names)}: set captions to one of "
                "them, or leave one of them there"
            )
            if how.needs_captions:
                raise problem
            self.rejected.append(RejectedEntry("caption", names[0], f"not read: {problem}"))
            found = [(table, columns) for table, columns in found if not columns.caption]
        columns = sorted({name for table, _ in found for name in table.columns})
        if how.group_column is not None and how.group_column not in columns:
            raise ValueError(
                f"the tables have no column {how.group_column!r} (group_column); they have {columns}"
            )
        return found

    def _without(self, problem: str, reasons: Sequence[RejectedEntry]) -> str:
        first = [f"{entry.entry}: {entry.reason}" for entry in reasons[:3]]
        return "; ".join([f"{self.source} {problem}", *first, *self.unused])
