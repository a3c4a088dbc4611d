"""A folder of the user's own images with captions."""

from pathlib import Path

from bifocal.datasets.base import UNCAPTIONED, CaptionEntry, Corpus, ImageEntry, RejectedEntry
from bifocal.datasets.formats.archives import remove_all_but, unpack
from bifocal.datasets.formats.caption_rows import CaptionRows, read_rows
from bifocal.datasets.formats.caption_table import (
    SUFFIXES,
    CaptionColumns,
    CaptionTable,
    choose_columns,
    read_caption_table,
    read_tables,
)
from bifocal.datasets.formats.folder import ARCHIVES, Folder, list_folder
from bifocal.datasets.formats.sidecars import CAPTION, IMAGE, read_sidecars, unused_sidecars
from bifocal.datasets.splits import drawn_splits
from bifocal.progress import log_line

EXPECTED = (
    "images and captions.csv, .tsv, .jsonl or .parquet, or a .txt file beside each image, or "
    "tar shards, or a zip file"
)


class ImageFolder:
    """A folder of images with captions, in the formats that people have.

    - ``captions.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` with one row per caption: image,
      caption, and if you like split, phrases and any other columns, which are kept as metadata.
      ``metadata.*`` is the same, with Hugging Face's columns ``file_name`` and ``text``.
    - ``photo.txt`` beside ``photo.jpg``, with one caption per line; or ``photo.json`` with the key
      ``caption``.
    - tar shards of such pairs, as WebDataset and img2dataset write them.
    - a zip file of any of these.

    An image may have several captions: several rows, a list in one row, or several lines. Phrases
    with boxes are a column ``phrases`` with ``[{"phrase": "the star", "boxes": [[x0, y0, x1,
    y1]]}]``, in pixels after EXIF rotation.

    The image id is the path of its file below ``root``. Without a column of splits, or without rows
    of a split, ``val`` and ``test`` are drawn from train by groups of images, so that
    near-duplicates are never in two splits.

    Args:
        root: the folder, or a zip file.
        captions: file name of the table below ``root``; None for the only file called captions.* or
            metadata.*.
        image_column, caption_column, split_column, phrases_column: names of columns; None to
            recognize them.
        group_column: images with the same value are never in two splits, such as an article number
            or a photographer.
        val, test: fractions of the images of train that are drawn for the splits that have no rows.
        uncaptioned: keep images without captions: they are searched, not trained on. Otherwise they
            are listed as rejected on purpose.
        encoding: of a text table.
        seed: of the drawn splits.

    Raises:
        ValueError: a fraction is negative, or nothing is left for train.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        captions: str | None = None,
        image_column: str | None = None,
        caption_column: str | None = None,
        split_column: str | None = None,
        phrases_column: str | None = None,
        group_column: str | None = None,
        val: float = 0.15,
        test: float = 0.15,
        uncaptioned: bool = False,
        encoding: str = "utf-8",
        seed: int = 0,
    ) -> None:
        if min(val, test) < 0 or val + test >= 1:
            raise ValueError(
                f"val is {val} and test is {test}: expected fractions in [0, 1) whose sum is "
                "less than 1"
            )
        self.root, self.captions, self.group_column = root, captions, group_column
        self.columns = {
            "image": image_column,
            "caption": caption_column,
            "split": split_column,
            "phrases": phrases_column,
        }
        self.fractions = {"val": val, "test": test}
        self.uncaptioned, self.encoding, self.seed = uncaptioned, encoding, seed

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; archives are unpacked to ``output_dir``."""
        folder, archives = self._open()
        rejected = folder.rejected()
        if archives:
            rejected = []
            for archive in archives:
                target = (
                    output_dir
                    if len(archives) == 1
                    else output_dir / archive.name.partition(".")[0]
                )
                rejected += unpack(archive, target)
            folder = list_folder(output_dir)
        folder.log_unread()
        table, rows = self._rows(folder)
        if table.path == folder.root:
            rejected += unused_sidecars(folder.root, folder.texts, folder.images)
        else:
            log_line(
                _recognized(table, choose_columns(table.columns, self.columns, table.path.name))
            )
        rejected += [*table.rejected, *rows.rejected]
        return self._corpus(folder, rows, rejected, drawn_into=output_dir)

    def count_captioned(self) -> int | None:
        """Count the image files that have a caption; None if they are in archives, which are not
        opened.

        Raises:
            ValueError: there are no captions.
        """
        folder, archives = self._open()
        if archives:
            return None
        return sum((folder.root / image).is_file() for image in self._rows(folder)[1].splits)

    def _open(self) -> tuple[Folder, list[Path]]:
        """Return the folder, and the archives to read in place of its images."""
        if self.root is None:
            raise ValueError(f"ImageFolder needs root: the folder with {EXPECTED}")
        root = Path(self.root)
        if not root.is_dir() and not (root.is_file() and root.suffix.lower() in ARCHIVES):
            raise ValueError(
                f"ImageFolder: root {str(root)!r} is not a folder; it must contain {EXPECTED}"
            )
        if root.is_file():
            return Folder(root, [], []), [root]
        folder = list_folder(root)
        archives = (
            []
            if folder.images
            else sorted(path for path in root.iterdir() if path.suffix.lower() in ARCHIVES)
        )
        return folder, archives

    def _rows(self, folder: Folder) -> tuple[CaptionTable, CaptionRows]:
        table = self._table(folder)
        if table is None:
            table = read_sidecars(folder)
            if not table.rows:
                files = sorted((*folder.texts, *folder.others))
                unread = (
                    f"; not read: {', '.join(files[:3])} and others, {len(files):,} files"
                    if files
                    else ""
                )
                raise ValueError(
                    f"ImageFolder: {folder.root} has no captions: it must contain "
                    f"{EXPECTED}{unread}; 'bifocal index' searches images without captions"
                )
            columns = choose_columns(
                table.columns, {"image": IMAGE, "caption": CAPTION}, "the files beside the images"
            )
        else:
            columns = choose_columns(table.columns, self.columns, table.path.name)
        return table, read_rows(table, columns, folder, self.group_column)

    def _table(self, folder: Folder) -> CaptionTable | None:
        if self.captions is not None:
            path = folder.root / self.captions
            if not path.is_file():
                raise ValueError(
                    f"ImageFolder: captions is {self.captions!r}, but {path} is not a file"
                )
            if path.suffix.lower() not in SUFFIXES:
                raise ValueError(
                    f"ImageFolder: captions is {self.captions!r}, expected a name that ends in "
                    f"{SUFFIXES}"
                )
            return read_caption_table(path, self.encoding)
        return read_tables(folder, self.encoding)

    def _corpus(
        self, folder: Folder, rows: CaptionRows, rejected: list[RejectedEntry], drawn_into: Path
    ) -> Corpus:
        if not rows.captions:
            first = "; ".join(f"{entry.entry}: {entry.reason}" for entry in rejected[:3])
            problem = (
                f"The first problems: {first}" if first else "The table of captions has no rows"
            )
            raise ValueError(f"ImageFolder: no caption of {folder.root} can be used. {problem}")
        splits = drawn_splits(rows.splits, rows.groups, folder.root, self.fractions, self.seed)
        images = [ImageEntry(image, image, split) for image, split in splits.items()]
        excluded: list[RejectedEntry] = []
        for image in folder.images:
            if image not in splits:
                if self.uncaptioned:
                    images.append(ImageEntry(image, image, UNCAPTIONED))
                else:
                    reason = "no caption; uncaptioned: true keeps it, to be searched"
                    excluded.append(RejectedEntry("image", image, reason, intentional=True))
        captions = [
            CaptionEntry(number, image, text) for number, (image, text) in enumerate(rows.captions)
        ]
        if folder.root == drawn_into:
            remove_all_but(drawn_into, [image.path for image in images])
        return Corpus(
            folder.root,
            images,
            captions,
            phrases=rows.phrases,
            excluded=excluded,
            rejected=rejected,
            metadata=rows.metadata,
        )


def _recognized(table: CaptionTable, columns: CaptionColumns) -> str:
    roles = {
        "image": columns.image,
        "caption": columns.caption,
        "split": columns.split,
        "phrases": columns.phrases,
    }
    used = ", ".join(
        f"{role} is column {name!r}{' (recognized)' if role in columns.guessed else ''}"
        for role, name in roles.items()
        if name
    )
    return (
        f"{table.path.name}: {len(table.rows):,} rows, {used}; kept as metadata: "
        f"{', '.join(columns.others) or 'none'}"
    )
