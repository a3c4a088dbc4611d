"""LaMem in its published files: a folder of images, and lists of images with their memorability."""

from pathlib import Path

from bifocal.datasets.base import SPLITS, Corpus, ImageEntry, LabelEntry
from bifocal.datasets.formats.entries import numbered, read_entries
from bifocal.datasets.formats.files import find_lists, read_lines, require_root

TASK = "memorability"


class LaMem:
    """60,000 images with memorability scores, without captions.

    Khosla, Raju, Torralba and Oliva, "Understanding and predicting image memorability at a large
    scale", ICCV 2015. The label of the task "memorability" is the fraction of people who recognized
    the image, in [0, 1], as published. The image id is its file name. A split without its list is
    empty.

    Args:
        root: folder of ``splits/train_1.txt``, ``val_1.txt``, ``test_1.txt`` and of ``images/``.
        fold: number of the published division into splits, from 1 to 5.
    """

    def __init__(self, root: Path | str | None = None, fold: int = 1) -> None:
        if not 1 <= fold <= 5:
            raise ValueError(f"LaMem: fold is {fold}, expected 1 to 5")
        self.root, self.fold = root, fold

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        lists = {split: f"splits/{split}_{self.fold}.txt" for split in SPLITS}
        root = require_root(self.root, "LaMem", f"{', '.join(lists.values())} and images/")
        corpus = Corpus(root / "images")
        for split, path in find_lists(root, lists, "LaMem").items():
            lines = (line for line in numbered(path, read_lines(path, "LaMem")) if line[1].strip())
            for name, score in read_entries("image", lines, _read_score, corpus.rejected):
                corpus.images.append(ImageEntry(name, name, split))
                corpus.labels.append(LabelEntry(name, TASK, TASK, score))
        return corpus


def _read_score(line: str) -> tuple[str, float]:
    try:
        name, text = line.split()
        score = float(text)
    except ValueError:
        raise ValueError(f"{line[:80]!r}, expected name.jpg score") from None
    if not 0 <= score <= 1:
        raise ValueError(f"score {text}, expected a fraction in [0, 1]")
    return name, score
