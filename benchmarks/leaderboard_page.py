"""The pages of both leaderboards: means over seeds, differences to the first row, gains, and the chosen values."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.common import measured
from benchmarks.tuning import Search, Trial, Tuned, difference

RECALLS = tuple(f"{way} R@{k}" for way in ("caption", "image") for k in (1, 5, 10))
SCENES = (*RECALLS, "recall sum", "pointing", "NDCG", "minutes")
CORRECTED = "corrected sum"
"""With the biases of the stored bank of training captions and images, as in search; absent without a bank."""
PHOTOGRAPHS = (*RECALLS, "recall sum", CORRECTED, "NDCG", "minutes", "parameters, M", "dim", "query, ms")
SIZES = ("parameters, M", "dim")
"""Equal for all seeds."""
BASELINE, QUICK = "baseline", "quick combination"
"""The second is a system, and the first with SMILE's attention: one training, and one row."""

Results = Mapping[str, Tuned]


@dataclass(frozen=True)
class Row:
    """A system: its table, its name, its difference from the paper, and all parameters of its stages."""

    group: str
    name: str
    differs: str
    values: Mapping[str, Any]


def scenes(results: Results, search: Search, differs: Mapping[str, str], chance: Mapping[str, float]) -> str:
    """Return the page of drawn scenes; systems without a finished training are named below the table."""
    devices = sorted({one["device"] for tuned in results.values() for one in tuned.seeds.values()})
    floor = [_cell([chance[measure]] if measure in chance else []) for measure in SCENES]
    parts = [
        "# Leaderboard",
        "Small twins of the systems on the drawn scenes, test split; written by `make leaderboard`. "
        f"{measured()} Every system has the same search of {len(search.trials)} trials, in "
        "[leaderboard.yaml](../benchmarks/quality/leaderboard.yaml); the validation images chose the trial. One row is "
        "one choice, trained with each seed: mean and standard deviation. R@K, pointing accuracy and NDCG in percent. "
        "The difference is the recall sum less the first row's, with a 95 % interval of a bootstrap over the test "
        f"images. Minutes are CPU time of one training; device: {', '.join(devices)}.",
        table(results, differs, SCENES, ["chance; the image center", "-", "-", *floor, "-"]),
        "[Drawn scenes](leaderboard_analysis.md#drawn-scenes) describes the effect of the tuning. It compares the "
        "order of the systems here and in the papers.",
        *_missing(results),
        "## Chosen values",
        "Factors of the values of the recipe, and the measure of the validation images: the recall sum, or NDCG for "
        "systems without a text encoder.",
        choices(results),
    ]
    return "\n\n".join(parts) + "\n"


def photographs(rows: Sequence[Row], results: Results, search: Search, published: Sequence[Any]) -> str:
    """Return the page of photographs."""
    differs = {row.name: row.differs for row in rows}
    systems, changes = (
        {row.name: results[row.name] for row in rows if row.group == group} for group in ("systems", "parts")
    )
    elsewhere = [
        f"| {entry['system']} | {entry['features']} | {entry['caption']} | {entry['image']} |" for entry in published
    ]
    parts = [
        "# Leaderboard on photographs",
        "Flickr8k: 6,000 training images; R@K in percent on the 1,000 images of the dev list with 5,000 captions, "
        f"which also choose the epoch; written by `make leaderboard-flickr8k`. {measured()} All rows have the same "
        f"stored features. Every system has the same search of {len(search.trials)} trials, in "
        "[leaderboard_flickr8k.yaml](../benchmarks/quality/leaderboard_flickr8k.yaml), on images of the training list "
        "alone. One row is one choice, trained with each seed: mean and standard deviation. The difference is the "
        "recall sum less the first row's, with a 95 % interval of a bootstrap over the images. The corrected sum has "
        "the biases of the stored bank, see [hubness](little_data.md#hubness). NDCG, in percent, measures images found "
        "by images against tf-idf of their captions, as in the paper of semantic retrieval. Minutes are CPU time of "
        "one training on one thread. A query is one caption against 1,000 images on one thread.",
        "Rows with the name of a system have its architecture and its loss; the second column says what differs from "
        "the paper.",
        table(systems, differs, PHOTOGRAPHS),
        "[Photographs](leaderboard_analysis.md#photographs) describes the effect of the tuning. It compares the order "
        "of the systems here and in the papers.",
        "## Chosen values",
        "Factors of the values in the file of the rows, and the recall sum of the held-out images.",
        choices(systems),
        "## Changes of the baseline",
        "The baseline is the quick combination with the mean cell in place of SMILE's attention; each row below it "
        "changes one part of the baseline. All have the values chosen for the quick combination.",
        table(changes, differs, PHOTOGRAPHS),
        "Gain: recall sum less the recall sum of the baseline, seed by seed; mean and standard deviation.",
        gain_table(results, [QUICK, *(name for name in changes if name != BASELINE)]),
        *_missing(results),
        "## Published elsewhere",
        "**Not comparable with the table above**: values of the papers on the test list, with other features and other "
        "training data, none measured here. The zero-shot line shows what a model trained on 400 million pairs gives "
        "without any training on this data.",
        "| system | features or data | caption R@1 | image R@1 |\n| --- | --- | --- | --- |\n" + "\n".join(elsewhere),
    ]
    return "\n\n".join(parts) + "\n"


def table(
    results: Results, differs: Mapping[str, str], measures: Sequence[str], floor: Sequence[str] | None = None
) -> str:
    """Return a Markdown table of the trained systems, and of a last line."""
    images = {
        name: {seed: one["images"] for seed, one in tuned.seeds.items() if "images" in one}
        for name, tuned in results.items()
    }
    first, rows = next(iter(results)), []
    for name, tuned in results.items():
        if tuned.seeds:
            found = difference(images[name], images[first]) if name != first else None
            text = f"{found[0]:+.1f} ({found[1]:+.1f} to {found[2]:+.1f})" if found else "-"
            cells = [_measure(list(tuned.seeds.values()), measure) for measure in measures]
            rows.append([name, differs[name], str(len(tuned.seeds)), *cells, text])
    return _table(
        [["system", "differs from the paper", "seeds", *measures, "difference"], *rows, *([floor] if floor else [])]
    )


def choices(results: Results) -> str:
    """Return a Markdown table of the chosen factors, and of the validation measures of the recipe and the choice."""
    rows = []
    for name, tuned in results.items():
        recipe, chosen = tuned.validation.get(Trial()), tuned.chosen
        if recipe is not None:
            factors = (
                [f"{value:g}" for value in (chosen.learning_rate, chosen.scale, chosen.batch_size)] if chosen else []
            )
            best = f"{tuned.validation[chosen]:.1f}" if chosen else "-"
            rows.append([name, *(factors or ["-"] * 3), f"{recipe:.1f}", best, str(len(tuned.validation))])
    return _table([["system", "learning rate", "scale", "batch size", "recipe", "chosen", "trials"], *rows])


def gains(results: Results, name: str) -> list[float]:
    """Return a row's recall sums minus the baseline's, for each seed that both have."""
    baseline, row = results[BASELINE].seeds, results[name].seeds
    return [row[seed]["recall sum"] - baseline[seed]["recall sum"] for seed in row if seed in baseline]


def gain_table(results: Results, names: Sequence[str]) -> str:
    """Return a Markdown table of the gains of the parts: mean, standard deviation, smallest and largest."""
    rows = []
    for name in names:
        if values := gains(results, name):
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            mean = f"{statistics.mean(values):+.1f}{spread}"
            rows.append([name, str(len(values)), mean, f"{min(values):+.1f}", f"{max(values):+.1f}"])
    return _table([["part", "seeds", "gain", "smallest", "largest"], *rows])


def _missing(results: Results) -> list[str]:
    names = [name for name, tuned in results.items() if not tuned.seeds]
    return [f"Not trained yet: {', '.join(names)}."] if names else []


def _measure(seeds: Sequence[Mapping[str, Any]], measure: str) -> str:
    if measure in SIZES:
        return f"{seeds[0][measure]:.3g}"
    return _cell([one[measure] for one in seeds if measure in one])


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows))
