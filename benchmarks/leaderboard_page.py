"""Page of the leaderboard on photographs: its tables, from the measures of the trained rows."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.common import measured

CORRECTED = "corrected_recall_sum"
"""With the biases of the stored bank of training captions and images, as in search; absent without a bank."""
NDCG = "ndcg"
"""Area under NDCG@R of images found by images, against tf-idf of captions; absent without one vector per image."""
RECALLS = [f"{direction}.R@{k}" for direction in ("caption_retrieval", "image_retrieval") for k in (1, 5, 10)]
SUMS = ("recall_sum", CORRECTED)
MEASURES = [*RECALLS, *SUMS, NDCG, "cpu_minutes", "parameters_millions", "dim", "query_ms"]
COLUMNS = (
    "system",
    "difference",
    "seeds",
    *(f"{way} R@{k}" for way in ("caption", "image") for k in (1, 5, 10)),
    "recall sum",
    "corrected sum",
    "NDCG",
    "CPU minutes",
    "parameters, M",
    "dim",
    "query, ms",
)
BASELINE, QUICK = "baseline", "quick combination"
"""The second is a system, and the first with SMILE's attention: one training, and one row."""
GAIN = "Gain: recall sum less the recall sum of the baseline, seed by seed; mean and standard deviation."

Results = Mapping[str, Mapping[int, Mapping[str, float]]]
"""Measures by row and seed."""


@dataclass(frozen=True)
class Row:
    """A system: its table, its name, its difference from the paper, and all parameters of its stages."""

    group: str
    name: str
    differs: str
    values: Mapping[str, Any]


def table(rows: Sequence[Row], results: Results) -> str:
    """Return a Markdown table: means over the seeds, and the standard deviations of the recall sums."""
    lines = [list(COLUMNS), ["---"] * len(COLUMNS)]
    for row in rows:
        seeds = list(results.get(row.name, {}).values())
        if not seeds:
            continue
        cells = [row.name, row.differs, str(len(seeds))]
        for name in MEASURES:
            values = [seed[name] for seed in seeds if name in seed]
            cell = f"{statistics.mean(values):.{0 if name == 'dim' else 1}f}" if values else "-"
            spread = f" ± {statistics.stdev(values):.1f}" if name in SUMS and len(values) > 1 else ""
            cells.append(cell + spread)
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def gains(results: Results, name: str) -> list[float]:
    """Return a row's recall sums minus the baseline's, for each seed that both have."""
    baseline, row = results.get(BASELINE, {}), results.get(name, {})
    return [row[seed]["recall_sum"] - baseline[seed]["recall_sum"] for seed in row if seed in baseline]


def compared(rows: Sequence[Row]) -> list[Row]:
    """Return the rows that change one part of the baseline."""
    return [row for row in rows if row.name == QUICK or (row.group == "parts" and row.name != BASELINE)]


def gain_table(rows: Sequence[Row], results: Results) -> str:
    """Return a Markdown table of the gains of the parts: mean, standard deviation, smallest and largest."""
    lines = [["part", "seeds", "gain", "smallest", "largest"], ["---"] * 5]
    for row in compared(rows):
        values = gains(results, row.name)
        if values:
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            mean = f"{statistics.mean(values):+.1f}{spread}"
            lines.append([row.name, str(len(values)), mean, f"{min(values):+.1f}", f"{max(values):+.1f}"])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(rows: Sequence[Row], results: Results, published: Sequence[Any]) -> str:
    """Return the page of the leaderboard."""
    missing = [row.name for row in rows if not results.get(row.name)]
    elsewhere = [
        f"| {entry['system']} | {entry['features']} | {entry['caption']} | {entry['image']} |" for entry in published
    ]
    parts = [
        "# Leaderboard on photographs",
        "Flickr8k: 6,000 training images; R@K in percent on the 1,000 images of the dev list with 5,000 captions, "
        "which also choose the epoch. All rows have the same stored features. Means over the seeds. The corrected sum "
        "has the biases of the stored bank, see [hubness](little_data.md#hubness). NDCG, in percent, measures images "
        "found by images against tf-idf of their captions, as in the paper of semantic retrieval. CPU minutes measure "
        "only the training. A query is one caption against 1,000 images on one thread. Written by "
        f"`make leaderboard-flickr8k`. {measured()}",
        "Rows with the name of a system have its architecture and its loss; the second column says what differs from "
        "the paper. They were not tuned alike: rate, temperature and batch size of the quick combination were chosen "
        "on images held out of training, and the other rows have its schedule. So their order says little about the "
        "methods.",
        table([row for row in rows if row.group == "systems"], results),
        "## Changes of the baseline",
        "The baseline is the quick combination with the mean cell in place of SMILE's attention; each row below it "
        "changes one part of the baseline.",
        table([row for row in rows if row.group == "parts"], results),
        *([GAIN, gain_table(rows, results)] if any(gains(results, row.name) for row in compared(rows)) else []),
        *([f"Not trained yet: {'; '.join(missing)}."] if missing else []),
        "## Published elsewhere",
        "**Not comparable with the table above**: values of the papers on the test list, with other features and other "
        "training data, none measured here. The zero-shot line shows what a model trained on 400 million pairs gives "
        "without any training on this data.",
        "| system | features or data | caption R@1 | image R@1 |\n| --- | --- | --- | --- |\n" + "\n".join(elsewhere),
    ]
    return "\n\n".join(parts) + "\n"
