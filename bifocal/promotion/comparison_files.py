"""Files of a comparison for a paper: a page, a chart, tables in LaTeX and CSV, and all numbers as
JSON."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import stdev
from typing import Any

from bifocal.durable import write_json, write_text
from bifocal.promotion.comparison import Comparison, Difference, metric_label
from bifocal.report.sections import Block, Page, Section, render

LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


@dataclass(frozen=True)
class Training:
    """One training of a system; None if a value is not known."""

    seed: int
    parameters: int | None  # trained and fixed numbers of the model
    steps: int | None
    minutes: float | None


def write_comparison(
    folder: Path,
    title: str,
    comparisons: Sequence[Comparison],
    trainings: Mapping[str, Sequence[Training]],
    blocks: Sequence[Block] = (),
) -> None:
    """Write ``index.html``, ``chart.svg``, ``table.tex``, ``table.csv`` and ``comparison.json``.

    Args:
        comparisons: with one reference.
        trainings: of each system by its name, in the order of its values.
        blocks: tables of the page that say what was compared.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sections = [comparison.section() for comparison in comparisons]
    if blocks:
        sections.append(Section("Trainings", "", blocks))
    write_text(folder / "index.html", render(Page(title, "", [], sections)))
    for number, comparison in enumerate(comparisons):
        name = "chart.svg" if len(comparisons) == 1 else f"chart-{number + 1}.svg"
        namespace = '<svg xmlns="http://www.w3.org/2000/svg" '
        write_text(folder / name, comparison.chart().replace("<svg ", namespace, 1) + "\n")
    write_text(folder / "table.tex", _latex(comparisons))
    write_text(folder / "table.csv", _csv(comparisons, trainings))
    numbers = {
        "sentences": [comparison.verdict() for comparison in comparisons],
        "comparisons": [_numbers(comparison) for comparison in comparisons],
        "trainings": {name: [vars(one) for one in ones] for name, ones in trainings.items()},
    }
    write_json(folder / "comparison.json", numbers)


def _latex(comparisons: Sequence[Comparison]) -> str:
    """Return a table of means and deviations over seeds, a row for each system.

    A value is bold if it is the better one, and the interval of the difference excludes 0; in the
    first row, of the differences to all others.
    """
    reference, metrics = comparisons[0].reference, [row.name for row in comparisons[0].differences]
    signs = [[row.sign for row in comparison.differences] for comparison in comparisons]
    is_best = [all(sign < 0 for sign in column) for column in zip(*signs, strict=True)]
    rows = [_latex_row(reference, comparisons[0].differences, 1, is_best)]
    for comparison, own in zip(comparisons, signs, strict=True):
        is_better = [sign > 0 for sign in own]
        rows.append(_latex_row(comparison.current, comparison.differences, 0, is_better))
    names = " & ".join(["", *(_escaped(metric_label(name)) for name in metrics)])
    sentences = "".join(f"% {comparison.verdict()}\n" for comparison in comparisons)
    return (
        f"{sentences}% Mean and deviation over seeds, percent. Bold: the 95 % interval of the "
        "difference\n% to the first row, over images and seeds, excludes 0.\n"
        f"\\begin{{tabular}}{{l{'r' * len(metrics)}}}\n\\hline\n{names} \\\\\n\\hline\n"
        + "".join(f"{row} \\\\\n" for row in rows)
        + "\\hline\n\\end{tabular}\n"
    )


def _latex_row(
    system: str, differences: Sequence[Difference], side: int, is_bold: Sequence[bool]
) -> str:
    cells = [_escaped(system)]
    for row, bold in zip(differences, is_bold, strict=True):
        value = f"{(row.current, row.reference)[side]:.1f}"
        if (deviation := _deviation(row.values[side])) is not None:
            value += f" $\\pm$ {deviation:.1f}"
        cells.append(f"\\textbf{{{value}}}" if bold else value)
    return " & ".join(cells)


def _csv(comparisons: Sequence[Comparison], trainings: Mapping[str, Sequence[Training]]) -> str:
    file = io.StringIO()
    metrics = [row.name for row in comparisons[0].differences]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["system", "seed", *metrics, "parameters", "steps", "minutes"])
    for name, values in _systems(comparisons):
        known: Sequence[Training | None] = trainings.get(name) or [None] * len(values[0])
        for training, *row in zip(known, *values, strict=True):
            facts = (
                [""] * 4
                if training is None
                else [training.seed, training.parameters, training.steps, training.minutes]
            )
            writer.writerow([name, facts[0], *row, *facts[1:]])
    return file.getvalue()


def _systems(
    comparisons: Sequence[Comparison],
) -> Iterator[tuple[str, list[Sequence[float]]]]:
    """Yield each system with its trainings' values of each metric."""
    first = comparisons[0]
    yield first.reference, [row.values[1] for row in first.differences]
    for comparison in comparisons:
        yield comparison.current, [row.values[0] for row in comparison.differences]


def _numbers(comparison: Comparison) -> dict[str, Any]:
    return {
        "current": comparison.current,
        "reference": comparison.reference,
        "images": comparison.images,
        "queries": comparison.queries[0],
        "seeds": comparison.seeds,
        "metrics": {
            row.name: {
                "current": row.current,
                "reference": row.reference,
                "deviations": [_deviation(values) for values in row.values],
                "difference": row.gain,
                "interval": row.interval,
                "interval_over_images": row.image_interval,
                "interval_over_seeds": row.seed_interval,
            }
            for row in comparison.differences
        },
    }


def _deviation(values: Sequence[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _escaped(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)
