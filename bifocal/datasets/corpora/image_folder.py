"""A folder of the user's own images with captions."""

from pathlib import Path

from bifocal.datasets.base import (
    UNCAPTIONED,
    CaptionEntry,
    Corpus,
    CorrectionEntry,
    ImageEntry,
    RejectedEntry,
)
from bifocal.datasets.corrections import read_corrections
from bifocal.datasets.formats.archives import remove_all_but
from bifocal.datasets.formats.caption_table import ROLES
from bifocal.datasets.formats.folder import list_folder
from bifocal.datasets.formats.user_files import (
    EXPECTED,
    Reading,
    UserFiles,
    archives_in,
    read_user_files,
)
from bifocal.datasets.splits import drawn_splits

TEST = "test"
MIN_CAPTIONED = 10
"""Minimum number of images with captions: 15 % of them are two, as val and test each
need."""


class ImageFolder:
    """A folder of images with captions, in the formats that people have.

    - ``captions.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` with one row per caption: image,
      caption, and if you like split, phrases and any other columns, which are kept as metadata.
      ``metadata.*`` is the same, with Hugging Face's columns ``file_name`` and ``text``.
    - ``photo.txt`` beside ``photo.jpg``, with one caption per line; or ``photo.json`` with the key
      ``caption``.
    - tar shards of such pairs, as WebDataset and img2dataset write them.
    - a zip file of any of these, or Parquet files with images, as the Hugging Face hub has them.

    An image may have several captions: several rows, a list in one row, or several lines. Phrases
    with boxes are a column ``phrases`` with ``[{"phrase": "the star", "boxes": [[x0, y0, x1,
    y1]]}]``, in pixels after EXIF rotation.

    The image id is the path of its file below ``root``. Without a column of splits, or without rows
    of a split, ``val`` and ``test`` are drawn from train by groups of images, so that
    near-duplicates are never in two splits.

    Args:
        root: the folder, an archive, or a table that names images.
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
        follow_links: links that lead out of the folder, and links to folders, are the user's own.
        corrections: file of people's corrections, which are further captions of images, and
            sentences that do not describe them; never of images of the split test.

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
        corrections: Path | str | None = None,
        follow_links: bool = False,
    ) -> None:
        if min(val, test) < 0 or val + test >= 1:
            raise ValueError(
                f"val is {val} and test is {test}: expected fractions in [0, 1) whose sum is "
                "less than 1"
            )
        self.root, self.uncaptioned, self.seed = root, uncaptioned, seed
        self.corrections = corrections
        self.fractions = {"val": val, "test": test}
        columns = {
            "image": image_column,
            "caption": caption_column,
            "split": split_column,
            "phrases": phrases_column,
        }
        self.how = Reading(captions, columns, ROLES, group_column, encoding, True, follow_links)

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; archives are unpacked to ``output_dir``."""
        files = read_user_files(self._root(), output_dir, self.how)
        corpus = self._corpus(files)
        if files.is_unpacked:
            remove_all_but(output_dir, [image.path for image in corpus.images])
        return corpus

    def count_captioned(self) -> int | None:
        """Count the image files that have a caption; None if they are in archives, which are not
        opened.

        Raises:
            ValueError: a training needs more images with captions.
        """
        root = self._root()
        if root.is_file() or archives_in(list_folder(root, follow_links=self.how.follow_links)):
            return None
        rows = read_user_files(root, root, self.how).rows
        count = len({image for image, _ in rows.captions})
        if count < MIN_CAPTIONED:
            raise ValueError(
                f"{root} has {count} images with captions, and a training needs at least "
                f"{MIN_CAPTIONED}: add images with captions, or search these without a training, "
                f"by 'bifocal index {root}'"
            )
        return count

    def _root(self) -> Path:
        if self.root is None:
            raise ValueError(f"ImageFolder needs root: the folder with {EXPECTED}")
        if not Path(self.root).exists():
            raise ValueError(
                f"ImageFolder: root {str(self.root)!r} is not a folder; it must contain {EXPECTED}"
            )
        return Path(self.root)

    def _corpus(self, files: UserFiles) -> Corpus:
        folder, rows = files.folder, files.rows
        rejected = [*files.rejected, *rows.missing]
        corrected, broken = (
            ({}, []) if self.corrections is None else read_corrections(Path(self.corrections))
        )
        rejected += broken
        own = {image for image, _ in rows.captions}
        right = {image for (image, _), fits in corrected.items() if fits}
        captioned = own | (right & set(files.images))
        if not captioned:
            first = "; ".join(f"{entry.entry}: {entry.reason}" for entry in rejected[:3])
            problem = (
                f"The first problems: {first}" if first else "The table of captions has no rows"
            )
            raise ValueError(f"ImageFolder: no caption of {self.root} can be used. {problem}")
        given = {image: split for image, split in rows.splits.items() if image in captioned}
        given |= dict.fromkeys(sorted(captioned - given.keys()))
        splits = drawn_splits(given, rows.groups, folder.root, self.fractions, self.seed)
        splits = {image: split for image, split in splits.items() if image in own or split != TEST}
        images = [ImageEntry(image, image, split) for image, split in splits.items()]
        excluded = [entry for entry in rejected if entry.intentional]
        for image in files.images:
            if image not in splits:
                if self.uncaptioned:
                    images.append(ImageEntry(image, image, UNCAPTIONED))
                else:
                    reason = "no caption; uncaptioned: true keeps it, to be searched"
                    excluded.append(RejectedEntry("image", image, reason, intentional=True))
        captions = [CaptionEntry(number, *each) for number, each in enumerate(rows.captions)]
        corrections = list[CorrectionEntry]()
        for correction, fits in corrected.items():
            if splits.get(correction[0], TEST) != TEST:
                number = len(captions) + len(corrections)
                corrections.append(CorrectionEntry(number, *correction, right=fits))
                continue
            known = "of the split test, which measures" if correction[0] in splits else "not used"
            reason = f"a correction of an image that is {known}"
            excluded.append(
                RejectedEntry("caption", ": ".join(correction), reason, intentional=True)
            )
        return Corpus(
            folder.root,
            images,
            [*captions, *(entry for entry in corrections if entry.right)],
            phrases=rows.phrases,
            excluded=excluded,
            rejected=[entry for entry in rejected if not entry.intentional],
            metadata=rows.metadata,
            follow_links=folder.follow_links,
            corrections=corrections,
        )
