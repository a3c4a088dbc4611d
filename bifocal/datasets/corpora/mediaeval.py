"""Video memorability of MediaEval: the published CSV, and frames that the user has extracted from
the videos."""

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from bifocal.datasets.base import Corpus, ImageEntry, LabelEntry, RejectedEntry
from bifocal.datasets.corpora.lamem import LaMem
from bifocal.datasets.formats.entries import read_entries, read_text
from bifocal.datasets.formats.files import check_columns, read_lines, require_root
from bifocal.datasets.splits import check_fractions, draw_splits

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
SHORT_TERM, LONG_TERM = "short_term_memorability", "long_term_memorability"
COLUMNS = {"short-term_memorability": SHORT_TERM, "long-term_memorability": LONG_TERM}
"""Task of each column of scores."""


class MediaEval:
    """Frames of 7-second videos with the memorability of their video, without captions.

    Cohendet et al., "MediaEval 2018: predicting media memorability", 2018. The tasks are
    "short_term_memorability" and "long_term_memorability", in [0, 1] as in the CSV. Every frame has
    the scores of its video and belongs to the video's group: frames are training samples, and the
    mean of their predictions is evaluated (thesis 5.5.1).

    The frames of ``video10.webm`` are ``video10-*.jpg`` (or png, webp). The thesis uses 7 of each,
    one per second: ``ffmpeg -i video10.webm -vf fps=1 frames/video10-%d.jpg``. Videos without a
    frame and frames without a video are excluded and listed.

    Args:
        root: folder of the CSV files and of the frames.
        train: CSV below ``root``, with the columns video, short-term_memorability,
            long-term_memorability.
        val: another CSV, or the fraction of the videos of ``train`` that are drawn for this split.
        test: as ``val``. The thesis has 8,000 videos for training and 2,000 for testing.
        frames: folder of the frames below ``root``.
        lamem: folder of LaMem below ``root``; all of its images join train as in the thesis, with
            their memorability as short-term memorability. None adds no images.
        seed: seed of the draw.
    """

    def __init__(
        self,
        root: Path | str | None = None,
        train: str = "ground-truth_dev-set.csv",
        val: str | float = 0.1,
        test: str | float = "ground-truth_test-set.csv",
        frames: str = "frames",
        lamem: str | None = None,
        seed: int = 0,
    ) -> None:
        check_fractions("MediaEval", val, test, "the name of a CSV", "videos")
        self.root, self.frames, self.lamem, self.seed = root, frames, lamem, seed
        self.subsets: dict[str, str | float] = {"train": train, "val": val, "test": test}

    def read(self, output_dir: Path) -> Corpus:
        """List the corpus; ``output_dir`` is not used."""
        root = require_root(
            self.root,
            "MediaEval",
            f"{self.subsets['train']} and the folder {self.frames} of frames",
        )
        folder = root / self.frames
        if not folder.is_dir():
            raise ValueError(
                f"MediaEval: {folder} is not a folder; extract frames from the videos or set "
                "the argument frames"
            )
        frames: dict[str, list[str]] = defaultdict(list)
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() in SUFFIXES:
                frames[path.stem.rpartition("-")[0]].append(path.name)
        corpus = Corpus(root)
        for video, (split, scores) in self._read_videos(root, corpus.rejected).items():
            names = frames.pop(video, [])
            if not names:
                corpus.exclude("image", video, f"video without a frame in {self.frames}")
            for name in names:
                corpus.images.append(ImageEntry(name, f"{self.frames}/{name}", split))
                corpus.labels += [
                    LabelEntry(name, task, task, score, group=video)
                    for task, score in scores.items()
                ]
        for name in sorted(name for names in frames.values() for name in names):
            corpus.exclude("image", name, "frame of no video in the CSV")
        if self.lamem is not None:
            lamem = LaMem(root / self.lamem).read(output_dir)
            corpus.images += [
                replace(image, path=f"{self.lamem}/images/{image.path}", split="train")
                for image in lamem.images
            ]
            corpus.rejected += lamem.rejected
            corpus.labels += [
                replace(label, task=SHORT_TERM, label=SHORT_TERM) for label in lamem.labels
            ]
        return corpus

    def _read_videos(
        self, root: Path, rejected: list[RejectedEntry]
    ) -> dict[str, tuple[str, dict[str, float]]]:
        scores: dict[str, dict[str, float]] = {}
        splits: dict[str, str] = {}
        for split, subset in self.subsets.items():
            if isinstance(subset, str):
                for video, values in _read_scores(root / subset, rejected).items():
                    if video in splits:
                        raise ValueError(
                            f"{root / subset}: {video} is also in the split {splits[video]}"
                        )
                    scores[video], splits[video] = values, split
        drawn = draw_splits(splits, self.subsets, self.seed)
        return {video: (drawn[video], values) for video, values in scores.items()}


def _read_scores(path: Path, rejected: list[RejectedEntry]) -> dict[str, dict[str, float]]:
    """Return the scores of every video, by the stem of its file name."""
    reader = csv.DictReader(read_lines(path, "MediaEval"))
    check_columns(path, reader.fieldnames or (), ("video", *COLUMNS))
    videos: dict[str, dict[str, float]] = {}

    def read(row: dict[str, str]) -> None:
        video = Path(read_text(row["video"])).stem
        if video in videos:
            raise ValueError(f"duplicate video {video}")
        try:
            scores = {task: float(row[column]) for column, task in COLUMNS.items()}
        except (TypeError, ValueError):
            raise ValueError(f"{row['video']} has no number in {' and '.join(COLUMNS)}") from None
        if not all(0 <= score <= 1 for score in scores.values()):
            raise ValueError(f"scores {list(scores.values())}, expected fractions in [0, 1]")
        videos[video] = scores

    read_entries(
        "image", ((f"{path.name}, line {reader.line_num}", row) for row in reader), read, rejected
    )
    return videos
