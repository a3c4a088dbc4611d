"""Video memorability of MediaEval: the published CSV, and frames that the user has taken from the videos."""

import csv
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from bifocal.datasets.base import Corpus, ImageEntry, LabelEntry, RejectedEntry, read_lines, require_root
from bifocal.datasets.corpora.lamem import LaMem

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
SHORT, LONG = "short_term_memorability", "long_term_memorability"
TASKS = {"short-term_memorability": SHORT, "long-term_memorability": LONG}


class MediaEval:
    """Frames of 7-second videos with the memorability of their video; no captions.

    Cohendet et al., "MediaEval 2018: predicting media memorability", 2018. The tasks are "short_term_memorability" and
    "long_term_memorability", in [0, 1] as the CSV has them. Every frame has the scores of its video, and is of the
    video's group: frames train one by one, and the mean of their predictions is judged (thesis 5.5.1).

    The frames of ``video10.webm`` are ``video10-*.jpg`` (or png, webp); the thesis takes 7 of each, one a second:
    ``ffmpeg -i video10.webm -vf fps=1 frames/video10-%d.jpg``. A video without a frame, and a frame of no video, are
    left out and listed.

    Args:
        root: folder of the CSV files and of the frames.
        train: CSV below ``root``, with the columns video, short-term_memorability, long-term_memorability.
        val: another CSV, or the fraction of the videos of ``train``, drawn with the seed, that become this split.
        test: as ``val``. The thesis has 8,000 videos to train on and 2,000 to test.
        frames: folder of the frames below ``root``.
        lamem: folder of LaMem below ``root``, all images of which join train, as in the thesis; their memorability is
            short-term.
        seed: of the draw.
    """

    def __init__(
        self,
        root: Path | None = None,
        train: str = "ground-truth_dev-set.csv",
        val: str | float = 0.1,
        test: str | float = "ground-truth_test-set.csv",
        frames: str = "frames",
        lamem: str | None = None,
        seed: int = 0,
    ) -> None:
        fractions = [part for part in (val, test) if not isinstance(part, str)]
        if any(fraction < 0 for fraction in fractions) or sum(fractions) >= 1:
            raise ValueError(
                f"MediaEval: val is {val!r} and test {test!r}; expected the name of a CSV, or a fraction of train's "
                "videos in [0, 1), together less than 1"
            )
        self.root, self.frames, self.lamem, self.seed = root, frames, lamem, seed
        self.parts: dict[str, str | float] = {"train": train, "val": val, "test": test}

    def read(self, images: Path) -> Corpus:
        """List the corpus; ``images`` is not used.

        Raises:
            ValueError: a file is missing, has no such columns, or a score that is no number in [0, 1].
        """
        root = require_root(self.root, "MediaEval", f"{self.parts['train']} and the folder {self.frames} of frames")
        folder = root / self.frames
        if not folder.is_dir():
            raise ValueError(f"MediaEval: {folder} is no folder; take frames from the videos, or set the option frames")
        frames: dict[str, list[str]] = defaultdict(list)
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() in SUFFIXES:
                frames[path.stem.rpartition("-")[0]].append(path.name)
        entries: list[ImageEntry] = []
        labels: list[LabelEntry] = []
        left_out: list[RejectedEntry] = []
        for video, (split, scores) in self._videos(root).items():
            names = frames.pop(video, [])
            if not names:
                left_out.append(
                    RejectedEntry("image", video, f"a video without a frame in {self.frames}", by_design=True)
                )
            for name in names:
                entries.append(ImageEntry(name, f"{self.frames}/{name}", split))
                labels += [LabelEntry(name, task, task, score, group=video) for task, score in scores.items()]
        strangers = sorted(name for names in frames.values() for name in names)
        left_out += [
            RejectedEntry("image", name, "a frame of no video in the CSV", by_design=True) for name in strangers
        ]
        if self.lamem is not None:
            stills = LaMem(root / self.lamem).read(images)
            entries += [
                replace(image, path=f"{self.lamem}/images/{image.path}", split="train") for image in stills.images
            ]
            labels += [replace(label, task=SHORT, label=SHORT) for label in stills.labels]
        return Corpus(root, entries, (), left_out=left_out, labels=labels)

    def _videos(self, root: Path) -> dict[str, tuple[str, dict[str, float]]]:
        """Split and scores of every video, whatever its place in the file."""
        videos: dict[str, tuple[str, dict[str, float]]] = {}
        for split, part in self.parts.items():
            if isinstance(part, str):
                for video, scores in _scores(root / part).items():
                    if video in videos:
                        raise ValueError(f"{root / part}: {video} is in the split {videos[video][0]} too")
                    videos[video] = (split, scores)
        drawable = sorted(video for video, (split, _) in videos.items() if split == "train")
        order = np.random.default_rng(self.seed).permutation(len(drawable))
        start = 0
        for split, part in self.parts.items():
            if not isinstance(part, str):
                end = start + round(part * len(drawable))
                for place in order[start:end]:
                    videos[drawable[place]] = (split, videos[drawable[place]][1])
                start = end
        return videos


def _scores(path: Path) -> dict[str, dict[str, float]]:
    """The scores of every video by the stem of its file."""
    reader = csv.DictReader(read_lines(path, "MediaEval"))
    missing = {"video", *TASKS} - set(reader.fieldnames or ())
    if missing:
        raise ValueError(f"{path} has no column {', '.join(sorted(missing))}; it has {reader.fieldnames}")
    videos: dict[str, dict[str, float]] = {}
    for row in reader:
        video = Path(row["video"]).stem
        where = f"{path}, line {reader.line_num}"
        if video in videos:
            raise ValueError(f"{where}: {video} is given twice")
        try:
            scores = {task: float(row[column]) for column, task in TASKS.items()}
        except (TypeError, ValueError):
            raise ValueError(f"{where}: {row['video']} has no number under {' and '.join(TASKS)}") from None
        if not all(0 <= score <= 1 for score in scores.values()):
            raise ValueError(f"{where}: scores {list(scores.values())}, expected shares in [0, 1]")
        videos[video] = scores
    return videos
