"""The page of ``quality.leaderboard``: means over seeds, differences to the first row, and the chosen values."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.common import measured
from benchmarks.tuning import Search, Trial, difference

RECALLS = tuple(f"{way} R@{k}" for way in ("caption", "image") for k in (1, 5, 10))
MEASURES = (*RECALLS, "recall sum", "pointing", "NDCG", "minutes")


@dataclass
class Tuned:
    """Validation measure of each finished trial of a system, the chosen trial, and test measures by seed."""

    validation: dict[Trial, float] = field(default_factory=dict)
    chosen: Trial | None = None
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)


def page(results: Mapping[str, Tuned], search: Search, chance: Mapping[str, float]) -> str:
    """Return the page of the leaderboard; systems without a finished training are named below the table."""
    devices = sorted({one["device"] for tuned in results.values() for one in tuned.seeds.values()})
    missing, rows = [name for name, tuned in results.items() if not tuned.seeds], _rows(results, search, chance)
    parts = [
        "# Leaderboard",
        "Small twins of the systems on the drawn scenes, test split; written by `make leaderboard`. "
        f"{measured()} Every system has the same search of {len(search.trials)} trials, in "
        "[leaderboard.yaml](../benchmarks/quality/leaderboard.yaml); the validation images chose the trial. One row is "
        "one choice, trained with each seed: mean and standard deviation. R@K, pointing accuracy and NDCG in percent. "
        "The difference is the recall sum less the first row's, with a 95 % interval of a bootstrap over the test "
        f"images. Minutes are CPU time of one training; device: {', '.join(devices)}.",
        _table([["system", "differs from the paper", "seeds", *MEASURES, "difference"], *rows]),
        "[Drawn scenes](leaderboard_analysis.md#drawn-scenes) says what the tuning changed, and which rankings "
        "of the papers hold here.",
        *([f"Not trained yet: {', '.join(missing)}."] if missing else []),
        "## Chosen values",
        "Factors of the values of the recipe, and the measure of the validation images: the recall sum, or NDCG for "
        "systems without a text encoder.",
        _table([["system", "learning rate", "scale", "batch size", "recipe", "chosen", "trials"], *_choices(results)]),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(results: Mapping[str, Tuned], search: Search, chance: Mapping[str, float]) -> list[list[str]]:
    images = {
        name: {seed: measures["images"] for seed, measures in tuned.seeds.items() if "images" in measures}
        for name, tuned in results.items()
    }
    first, rows = next(iter(results)), []
    for name, tuned in results.items():
        if tuned.seeds:
            found = difference(images[name], images[first]) if name != first else None
            text = f"{found[0]:+.1f} ({found[1]:+.1f} to {found[2]:+.1f})" if found else "-"
            cells = [_cell([one[measure] for one in tuned.seeds.values() if measure in one]) for measure in MEASURES]
            rows.append([name, search.differs[name], str(len(tuned.seeds)), *cells, text])
    floor = [_cell([chance[measure]] if measure in chance else []) for measure in MEASURES]
    return [*rows, ["chance; the image center", "-", "-", *floor, "-"]]


def _choices(results: Mapping[str, Tuned]) -> list[list[str]]:
    rows = []
    for name, tuned in results.items():
        recipe, chosen = tuned.validation.get(Trial()), tuned.chosen
        if recipe is not None:
            factors = (
                [f"{value:g}" for value in (chosen.learning_rate, chosen.scale, chosen.batch_size)] if chosen else []
            )
            best = f"{tuned.validation[chosen]:.1f}" if chosen else "-"
            rows.append([name, *(factors or ["-"] * 3), f"{recipe:.1f}", best, str(len(tuned.validation))])
    return rows


def _cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def _table(lines: Sequence[Sequence[str]]) -> str:
    head, *rows = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rows))
