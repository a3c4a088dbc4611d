"""What a dataset provides: images, captions, phrases with boxes, labels, splits.

A source is a class of this package with one method, ``read``. It only lists; ``write_dataset`` then opens every image,
refuses what is broken, and writes the tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class ImageEntry:
    """One image of a corpus.

    Attributes:
        path: of the file, relative to the corpus's image root; None where only features are published.
        split: "train", "val" or "test".
        size: (width, height) in pixels that the corpus states, on which its boxes rest; None if it states none.
    """

    image_id: str
    path: str | None
    split: str
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class CaptionEntry:
    """One sentence on an image; ``caption_id`` is the corpus's own number where it has one."""

    caption_id: int
    image_id: str
    text: str


@dataclass(frozen=True)
class PhraseEntry:
    """A noun phrase and where it is: boxes x0 y0 x1 y1 in pixels of the image as it is shown.

    ``caption_id`` is None for a phrase that stands in no sentence, such as the name of a category. ``category`` is what
    kind of thing it names, where the corpus says so; of several kinds all, with "/" between them.
    """

    image_id: str
    caption_id: int | None
    phrase: str
    boxes: tuple[tuple[float, float, float, float], ...]
    category: str | None = None


@dataclass(frozen=True)
class LabelEntry:
    """One number that is known of an image, see ``bifocal.datasets.tables.LABELS``.

    Attributes:
        task: labels that are predicted together, such as "shapes".
        value: graded, or 1 and 0 for present and absent; None for present, but too hard to see to be measured.
        group: images that are judged together, as the frames of one video; None for an image that stands alone.
    """

    image_id: str
    task: str
    label: str
    value: float | None
    group: str | None = None


@dataclass(frozen=True)
class RejectedEntry:
    """What is not in the dataset, and why.

    Attributes:
        kind: "image", "caption", "phrase" or "label".
        what: its file or id.
        by_design: left out by the corpus or by the user's choice, so nothing is broken.
    """

    kind: str
    what: str
    reason: str
    by_design: bool = False


@dataclass(frozen=True)
class Corpus:
    """All that a source has read, in the corpus's order."""

    image_root: Path
    images: Sequence[ImageEntry]
    captions: Sequence[CaptionEntry]
    phrases: Sequence[PhraseEntry] = ()
    left_out: Sequence[RejectedEntry] = field(default=())
    labels: Sequence[LabelEntry] = ()


class Source(Protocol):
    """A corpus. Its class takes ``root``, the user's folder, if it reads files, and ``seed`` if it draws numbers."""

    def read(self, images: Path) -> Corpus:
        """List the corpus.

        Args:
            images: the folder for images that the source makes itself; sources of files leave it alone.

        Raises:
            ValueError: a file of the corpus is missing or is not in its published format.
        """
        ...


def require_root(root: Path | str | None, source: str, files: str) -> Path:
    """The folder of a source that reads files.

    Raises:
        ValueError: none was given, or it is no folder; says what it must hold.
    """
    if root is None:
        raise ValueError(f"{source} needs root: the folder that holds {files}")
    if not Path(root).is_dir():
        raise ValueError(f"{source}: root {str(root)!r} is no folder; it must hold {files}")
    return Path(root)


def read_lines(path: Path, source: str) -> list[str]:
    """The lines of a corpus's text file (UTF-8), the empty ones included.

    Raises:
        ValueError: there is no such file, or it is not UTF-8.
    """
    if not path.is_file():
        raise ValueError(f"{source} needs {path}: no such file")
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
