"""What a dataset holds, and what is wrong with it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from bifocal.datasets import Dataset
from bifocal.datasets.base import META, UNCAPTIONED
from bifocal.datasets.duplicates import DuplicatePair, near_duplicates, shared_captions
from bifocal.datasets.splits import missing_splits
from bifocal.draws import drawn

Severity = Literal["error", "warning", "note"]
EXAMPLES = 20
FEW_WORDS = 3
"""Captions with fewer words say little."""
SMALLEST = 64
"""Pixels of the shorter side below which an image is very small."""


@dataclass(frozen=True)
class Finding:
    """Possible problem of a dataset: an "error" loses or leaks entries, a "warning" harms results,
    a "note" informs."""

    severity: Severity
    title: str
    count: int
    advice: str
    examples: Sequence[str] = ()


@dataclass(frozen=True)
class Inspection:
    """Result of an inspection; findings start with the most severe, languages are empty if not
    recognized."""

    counts: dict[str, str]
    languages: dict[str, float]
    findings: list[Finding] = field(default_factory=list)
    duplicates: list[DuplicatePair] = field(default_factory=list)

    @property
    def errors(self) -> int:
        """Number of findings that are errors."""
        return sum(finding.severity == "error" for finding in self.findings)


def inspect_dataset(
    dataset: Dataset,
    rejected: pd.DataFrame,
    languages: dict[str, float],
    limit: int = 5000,
) -> Inspection:
    """Inspect a dataset; at most ``limit`` drawn images are compared for near-duplicates. Nothing
    is changed."""
    images, captions = dataset.images, dataset.captions
    words = pd.Series(
        [len(text.split()) for text in captions["text"]], index=captions.index, dtype=int
    )
    pairs = _near_duplicates(dataset, limit)
    findings = [
        *_rejected(rejected),
        *_splits(images),
        *_duplicates(dataset, pairs),
        *_captions(captions, words),
        *_sizes(images),
        *_languages(languages),
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    findings.sort(key=lambda finding: (order[finding.severity], -finding.count))
    return Inspection(_counts(dataset, words, min(limit, len(images))), languages, findings, pairs)


def _counts(dataset: Dataset, words: pd.Series, compared: int) -> dict[str, str]:
    images = dataset.images
    splits = images["split"].value_counts()
    counts = {"images": f"{len(images):,}", "captions": f"{len(dataset.captions):,}"}
    counts |= {f"images, {split}": f"{splits[split]:,}" for split in splits.index}
    per_image = dataset.captions.groupby("image_id").size()
    if len(per_image):
        counts["captions per image"] = (
            f"{per_image.min()} to {per_image.max()}, {per_image.mean():.1f} on average"
        )
        low, middle, high = np.percentile(words, [5, 50, 95])
        counts["words per caption"] = (
            f"{low:.0f} to {high:.0f} for nine of ten, median {middle:.0f}"
        )
        counts["different words"] = (
            f"{len(set(' '.join(dataset.captions['text'].str.lower()).split())):,}"
        )
    sizes = images[["width", "height"]]
    if (sizes["width"] > 0).any():
        area = sizes["width"] * sizes["height"]
        extremes = sizes.loc[[area.idxmin(), area.idxmax()]].to_dict("records")
        counts["pixels"] = " to ".join(f"{row['width']} x {row['height']}" for row in extremes)
    counts["phrases with boxes"] = f"{len(dataset.phrases):,}"
    names = [name.removeprefix(META) for name in dataset.metadata.columns if name.startswith(META)]
    counts["metadata"] = ", ".join(names) or "none"
    counts["images compared for near-duplicates"] = f"{compared:,}"
    return counts


def _finding(severity: Severity, title: str, advice: str, entries: Sequence[str]) -> list[Finding]:
    return [Finding(severity, title, len(entries), advice, entries[:EXAMPLES])] if entries else []


def _texts(rows: pd.DataFrame, form: str) -> list[str]:
    """Return ``form`` with the values of each row."""
    return [form.format_map(row) for row in rows.to_dict("records")]


def _rejected(rejected: pd.DataFrame) -> list[Finding]:
    intentional = rejected["intentional"].astype(bool)
    broken, findings = rejected[~intentional], list[Finding]()
    for (kind, reason), rows in broken.groupby(["kind", broken["reason"].map(_general)]):
        advice = f"repair the {kind}, or leave it out; it is not in the dataset"
        findings += _finding(
            "error", f"{kind}: {reason}", advice, _texts(rows, "{entry}: {reason}")
        )
    left_out = _texts(rejected[intentional], "{entry}: {reason}")
    return findings + _finding("note", "left out on purpose", "see the reasons", left_out)


def _splits(images: pd.DataFrame) -> list[Finding]:
    counts = Counter(images["split"])
    problem = (
        missing_splits(counts) if counts.keys() != {UNCAPTIONED} else None
    )  # images to search, not to train on
    return [] if problem is None else [Finding("error", "a split without images", 1, problem)]


def _general(reason: str) -> str:
    """Return a reason without what differs between entries, so that equal problems are counted
    together."""
    return reason.split(":")[0].split(" (")[0][:60]


def _near_duplicates(dataset: Dataset, limit: int) -> list[DuplicatePair]:
    ids = dataset.images.loc[dataset.images["path"].notna(), "image_id"].tolist()
    compared = drawn(ids, limit, 0)
    if len(compared) < 2:
        return []
    pairs = near_duplicates(compared, compared, dataset.open_image)
    return [pair for pair in pairs if pair.first < pair.second]


def _duplicates(dataset: Dataset, pairs: Sequence[DuplicatePair]) -> list[Finding]:
    split_of = dict(zip(dataset.images["image_id"], dataset.images["split"], strict=True))
    across = [
        f"{pair.first} ({split_of[pair.first]}), {pair.second} ({split_of[pair.second]})"
        for pair in pairs
        if split_of[pair.first] != split_of[pair.second]
    ]
    within = [
        f"{pair.first}, {pair.second}"
        for pair in pairs
        if split_of[pair.first] == split_of[pair.second]
    ]
    advice = "put them into one split: the model is tested on images that it was trained on"
    return [
        *_finding("error", "near-duplicates in two splits", advice, across),
        *_finding("warning", "near-duplicates in one split", "leave one of them out", within),
    ]


def _captions(captions: pd.DataFrame, words: pd.Series) -> list[Finding]:
    shared = _texts(shared_captions(captions), "{text} ({images} images)")
    twice = _texts(captions[captions.duplicated(["image_id", "text"])], "{image_id}: {text}")
    short = _texts(captions[words < FEW_WORDS], "{image_id}: {text}")
    ambiguous = (
        "no model can tell these images apart by this caption; retrieval counts only its own image"
    )
    few = f"captions with fewer than {FEW_WORDS} words say little about an image"
    return [
        *_finding("warning", "captions of several images", ambiguous, shared),
        *_finding("note", "captions twice at one image", "leave one of them out", twice),
        *_finding("warning", "very short captions", few, short),
    ]


def _sizes(images: pd.DataFrame) -> list[Finding]:
    small = images[(images["width"] > 0) & (images[["width", "height"]].min(axis=1) < SMALLEST)]
    advice = f"images below {SMALLEST} pixels hold little to search for"
    return _finding(
        "warning", "very small images", advice, _texts(small, "{image_id}: {width} x {height}")
    )


def _languages(languages: dict[str, float]) -> list[Finding]:
    others = Counter({language: share for language, share in languages.items() if share >= 0.02})
    if len(others) < 2:
        return []
    text = ", ".join(f"{language} {share:.0%}" for language, share in others.most_common())
    advice = f"{text}: stemming and stop words are for one language"
    return [Finding("note", "captions in several languages", len(others), advice)]
