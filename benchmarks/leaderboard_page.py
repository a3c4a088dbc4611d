"""The records of both leaderboards: means over seeds, differences to the first row, gains, and the
chosen values."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Any

from benchmarks.common import measured
from benchmarks.tuning import Trial, Tuned, difference

RECALLS = tuple(f"{way} R@{k}" for way in ("caption", "image") for k in (1, 5, 10))
SCENES = (*RECALLS, "recall sum", "pointing", "NDCG", "minutes")
CORRECTED = "corrected sum"
"""With the biases of the stored bank of training captions and images, as in search; absent without
a bank."""
PHOTOGRAPHS = (
    *RECALLS,
    "recall sum",
    CORRECTED,
    "NDCG",
    "minutes",
    "parameters, M",
    "dim",
    "query, ms",
)
SIZES = ("parameters, M", "dim")
"""Equal for all seeds."""
BASELINE, QUICK = "baseline", "quick combination"
"""The second is the first with SMILE's attention."""

Results = Mapping[str, Tuned]


@dataclass(frozen=True)
class Row:
    """A system: its table, name, difference from the paper, parameters, the row that it is
    compared with, the system whose search chose its values, and what it reads of an image."""

    group: str
    name: str
    differs: str
    values: Mapping[str, Any]
    against: str
    chosen_for: str
    reads: str


def scenes(results: Results, differs: Mapping[str, str], chance: Mapping[str, float]) -> str:
    """Return the record of drawn scenes; systems without a finished training are named below the
    table."""
    devices = sorted({one["device"] for tuned in results.values() for one in tuned.seeds.values()})
    floor = [_cell([chance[measure]] if measure in chance else []) for measure in SCENES]
    against = dict.fromkeys(results, next(iter(results)))
    parts = [
        "# Leaderboard on drawn scenes",
        f"{measured()} Device: {', '.join(devices)}.",
        table(
            results,
            {name: differs[name] for name in results},
            SCENES,
            against,
            [["chance; the image center", "-", "-", *floor, "-", "-"]],
        ),
        *_missing(results),
        "## Chosen values",
        choices(results),
    ]
    return "\n\n".join(parts) + "\n"


def photographs(protocol: str, rows: Sequence[Row], results: Results, record: str = "") -> str:
    """Return the record of photographs; rows without a training keep their lines of ``record``, the
    earlier text, if it has the same protocol."""
    kept_record = record if protocol in record else ""
    differs, against = (
        {row.name: row.differs for row in rows},
        {row.name: row.against for row in rows},
    )
    systems, changes = (
        {row.name: results[row.name] for row in rows if row.group == group}
        for group in ("systems", "parts")
    )
    tables = [
        table(
            results,
            {name: differs[name] for name in names},
            PHOTOGRAPHS,
            against,
            record=kept_record,
            notes={name: note(tuned) for name, tuned in results.items()},
        )
        for names in (systems, changes)
    ]
    shown = {name for text in tables for name in _lines(text)}
    kept = [name for name, tuned in results.items() if name in shown and not tuned.seeds]
    parts = [
        "# Leaderboard on photographs",
        measured() + (f" Measured before this day: {', '.join(kept)}." if kept else ""),
        protocol,
        *_missing({name: tuned for name, tuned in results.items() if name not in shown}),
        tables[0],
        "## Chosen values",
        choices({name: tuned for name, tuned in systems.items() if name in shown}, kept_record),
        "## Changes of one part",
        tables[1],
        gain_table(results, {name: against[name] for name in changes}, kept_record),
    ]
    return "\n\n".join(parts) + "\n"


def note(tuned: Tuned) -> str:
    """Return what a row says against its own values."""
    last = f"best in the last round: {tuned.unfinished} of {len(tuned.seeds)}"
    edges = f"at an edge: {', '.join(map(_words, tuned.edges))}"
    return "; ".join([last] * (tuned.unfinished > 0) + [edges] * bool(tuned.edges)) or "-"


def table(
    results: Results,
    differs: Mapping[str, str],
    measures: Sequence[str],
    against: Mapping[str, str],
    floor: Sequence[Sequence[str]] = (),
    record: str = "",
    notes: Mapping[str, str] | None = None,
) -> str:
    """Return a Markdown table of the trained systems of ``differs``, with ``notes``, and of last
    lines.

    The difference in recall sum to the row of ``against`` has a 95 % interval over images and
    seeds. A system that is not trained has its line of ``record``.
    """
    images = {
        name: {seed: one["images"] for seed, one in tuned.seeds.items() if "images" in one}
        for name, tuned in results.items()
    }
    rows = []
    for name, text in differs.items():
        if tuned := results.get(name, Tuned()).seeds:
            found = (
                difference(images[name], images[against[name]]) if name != against[name] else None
            )
            compared = (
                [against[name], f"{found[0]:+.1f} ({found[1]:+.1f} to {found[2]:+.1f})"]
                if found
                else ["-", "-"]
            )
            cells = [_measure(list(tuned.values()), measure) for measure in measures]
            noted = [] if notes is None else [notes[name]]
            rows.append([name, text, str(len(tuned)), *cells, *compared, *noted])
    head = ["system", "differs from the paper", "seeds", *measures, "compared with", "difference"]
    head += [] if notes is None else ["note"]
    return _table([head, *_kept(head, rows, differs, record), *floor])


def choices(results: Results, record: str = "") -> str:
    """Return a Markdown table of the chosen factors, and of the validation measures of the recipe
    and the choice."""
    rows = []
    for name, tuned in results.items():
        recipe, chosen = tuned.validation.get(Trial()), tuned.chosen
        if recipe is not None:
            factors = (
                [f"{value:g}" for value in astuple(chosen)]
                if chosen
                else ["-"] * len(fields(Trial))
            )
            best = f"{tuned.validation[chosen]:.1f}" if chosen else "-"
            edges = ", ".join(_words(name) for name in tuned.edges) or "-"
            tried = str(tuned.tried or len(tuned.validation))
            rows.append([name, *factors, f"{recipe:.1f}", best, tried, edges])
    head = [
        "system",
        *(_words(one.name) for one in fields(Trial)),
        "recipe",
        "chosen",
        "trials",
        "at an edge",
    ]
    return _table([head, *_kept(head, rows, results, record)])


def _words(name: str) -> str:
    return name.replace("_", " ")


def gains(results: Results, name: str, against: str) -> list[float]:
    """Return a row's recall sums minus those of another row, for each seed that both have."""
    first, row = results[against].seeds, results[name].seeds
    return [row[seed]["recall sum"] - first[seed]["recall sum"] for seed in row if seed in first]


def gain_table(results: Results, against: Mapping[str, str], record: str = "") -> str:
    """Return a Markdown table of the gains of the parts: mean, standard deviation, smallest and
    largest."""
    rows = []
    for name, first in against.items():
        if values := gains(results, name, first):
            spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
            mean = f"{statistics.mean(values):+.1f}{spread}"
            rows.append(
                [name, str(len(values)), mean, f"{min(values):+.1f}", f"{max(values):+.1f}"]
            )
    head = ["part", "seeds", "gain", "smallest", "largest"]
    return _table([head, *_kept(head, rows, against, record)])


def _kept(
    head: Sequence[str], rows: Iterable[Sequence[str]], names: Iterable[str], record: str
) -> list[Sequence[str]]:
    """Return the row of each name: a new one, else the one in a table of ``record`` with the same
    head."""
    tables = [_lines(block) for block in record.split("\n\n")]
    found: dict[str, Sequence[str]] = {}
    for lines in tables:
        if lines.get(head[0]) == list(head):
            found |= lines
    found |= {row[0]: row for row in rows}
    return [found[name] for name in names if name in found]


def _lines(table: str) -> dict[str, list[str]]:
    """Return the cells of each line of a Markdown table by the first cell."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {cells[0]: cells for cells in lines}


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
