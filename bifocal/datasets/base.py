"""Entries of a corpus: images, captions, phrases with boxes, labels, splits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

SPLITS = ("train", "val", "test")
SYNSETS = "synsets"
"""Task of labels that count the objects of an image by WordNet synset."""
META = "meta."
"""Prefix of the user's own columns, so that none has the name of an internal column."""
UNCAPTIONED = "uncaptioned"
"""Split of images without captions and labels, which nothing is trained or evaluated on; they can
be searched."""

Box = tuple[float, float, float, float]
"""x0 y0 x1 y1, in pixels of the image after EXIF rotation; x1 and y1 are exclusive."""


@dataclass(frozen=True)
class ImageEntry:
    """One image of a corpus."""

    image_id: str
    path: str | None  # relative to the image root; None if the corpus publishes only features
    split: str  # "train", "val", "test" or "uncaptioned"
    size: tuple[int, int] | None = (
        None  # (width, height) in pixels that the boxes refer to, if the corpus states it
    )
    features_sha256: str | None = None  # of the published features of an image without a file


@dataclass(frozen=True, slots=True)
class CaptionEntry:
    """One sentence about an image; ``caption_id`` is the published number if the corpus has one."""

    caption_id: int
    image_id: str
    text: str


@dataclass(frozen=True, slots=True)
class CorrectionEntry(CaptionEntry):
    """A sentence that people found right or wrong for an image."""

    right: bool


@dataclass(frozen=True, slots=True)
class PhraseEntry:
    """A noun phrase with the boxes of its objects."""

    image_id: str
    caption_id: int | None  # None for a phrase outside captions, such as a category name
    phrase: str
    boxes: tuple[Box, ...]  # one box per object
    category: str | None = None  # several types are joined by "/"
    mask: str | None = None  # joint pixels of the objects, see ``bifocal.datasets.formats.masks``


@dataclass(frozen=True)
class LabelEntry:
    """One target value of an image; the columns are described at
    ``bifocal.datasets.tables.LABELS``."""

    image_id: str
    task: str  # labels that are predicted together, such as "shapes"
    label: str
    value: (
        float | None
    )  # graded, or 1 for present and 0 for absent; None is excluded from metrics ("difficult")
    group: str | None = None  # images evaluated together, such as the frames of one video


@dataclass(frozen=True)
class RejectedEntry:
    """An entry of the corpus that is not in the dataset, with the reason."""

    kind: str  # "image", "caption", "phrase" or "label"
    entry: str  # file name or id
    reason: str
    intentional: bool = (
        False  # excluded by the corpus or by the user's options; False for a broken entry
    )


@dataclass
class Corpus:
    """Entries of a corpus, in its order; a reader adds them one by one, or gives them at once.

    Attributes:
        image_root: folder of the image files.
        excluded: entries that the reader leaves out on purpose.
        rejected: broken entries that the reader could not read.
        metadata: other values that the corpus has of an image, by image id; all images have the
            same names.
        follow_links: links that lead out of the image root are the user's own.
        corrections: what people said about images; right ones are captions, too.
    """

    image_root: Path
    images: list[ImageEntry] = field(default_factory=list)
    captions: list[CaptionEntry] = field(default_factory=list)
    phrases: list[PhraseEntry] = field(default_factory=list)
    excluded: list[RejectedEntry] = field(default_factory=list)
    labels: list[LabelEntry] = field(default_factory=list)
    rejected: list[RejectedEntry] = field(default_factory=list)
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    corrections: list[CorrectionEntry] = field(default_factory=list)
    follow_links: bool = False

    def exclude(self, kind: str, entry: str, reason: str) -> None:
        """List an entry that is left out on purpose."""
        self.excluded.append(RejectedEntry(kind, entry, reason, intentional=True))

    def only(self, image_ids: Collection[str]) -> "Corpus":
        """Return the images with these ids, with their captions, phrases, labels and metadata."""
        tables: dict[str, Any] = {
            name: [entry for entry in getattr(self, name) if entry.image_id in image_ids]
            for name in ("images", "captions", "phrases", "labels", "corrections")
        }
        metadata = {
            image_id: values for image_id, values in self.metadata.items() if image_id in image_ids
        }
        return replace(self, **tables, metadata=metadata)


class CorpusReader(Protocol):
    """Reader of one corpus.

    Its class takes ``root``, the folder of the corpus, if it reads files, and ``seed`` if it draws
    random numbers.
    """

    def read(self, output_dir: Path) -> Corpus:
        """List the entries of the corpus; only readers that draw or unpack images write to
        ``output_dir``.

        A file that is missing, or not in its published format, raises ``ValueError``.
        """
        ...
