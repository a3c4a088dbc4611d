"""The main metrics of a run as a table; ``dvc metrics show`` has their summary in one row."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Column, Table

from bifocal.onnx.files import read_json
from bifocal.progress import plain

DIRECTIONS = {"caption_retrieval": "caption retrieval", "image_retrieval": "image retrieval"}


def ranking_table(folder: Path) -> RenderableType:
    """Return the table of ``folder/artifacts/ranking_metrics/metrics.json``."""
    metrics = _read(folder / "artifacts" / "ranking_metrics" / "metrics.json")
    table = Table(
        title=plain(f"{metrics['task']}: {metrics['measure'].replace('_', ' ')}, times 100")
    )
    for column in ("loss", "val", "test"):
        table.add_column(column, justify="left" if column == "loss" else "right")
    for role in ("loss", "surrogate"):
        if role in metrics:
            values = (metrics[role][split] for split in ("validation", "test"))
            table.add_row(plain(metrics[role]["name"]), *(f"{100 * value:.1f}" for value in values))
    return table


def metrics_table(folder: Path) -> RenderableType:
    """Return the table of ``folder/artifacts/metrics/metrics.json``, and the path of the report.

    An evaluation without retrieval, such as only semantic retrieval, has the table of its
    ``summary.json``.
    """
    metrics = _read(folder / "artifacts" / "metrics" / "metrics.json")
    report = f"report: {(folder / 'artifacts' / 'report' / 'index.html').as_posix()}"
    if "caption_retrieval" in metrics:
        return Group(_retrieval_table(metrics), *_pointing(metrics), report)
    table = Table("metric", Column("value", justify="right"), title="Summary of the evaluation")
    for name, value in _read(folder / "artifacts" / "metrics" / "summary.json").items():
        table.add_row(plain(name), f"{value:.1f}")
    return Group(table, *_pointing(metrics), report)


def _retrieval_table(metrics: Mapping[str, Any]) -> Table:
    # The report has R-precision and mAP@R, which are of caption retrieval alone.
    shared = metrics["caption_retrieval"].keys() & metrics["image_retrieval"].keys()
    names = sorted(shared, key=lambda name: (len(name), name))
    table = Table(
        title=f"{metrics['images']} images, {metrics['captions']} captions; R@K in percent, "
        "ranks from 1"
    )
    table.add_column()
    for name in names:
        table.add_column(name.replace("_", " "), justify="right")
    for direction, label in DIRECTIONS.items():
        groups = {
            "": metrics,
            ", corrected": metrics.get("corrected"),
            ", re-ranked": metrics["reranked"],
        }
        for suffix, group in (groups | {", chance": metrics["chance"]}).items():
            if group is None:
                continue
            table.add_row(label + suffix, *(f"{group[direction][name]:.1f}" for name in names))
        table.add_section()
    return table


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist: run 'make repro' first")
    metrics: dict[str, Any] = read_json(file)
    return metrics


def _pointing(metrics: Mapping[str, Any]) -> Iterator[str]:
    if "pointing" in metrics:
        pointing = metrics["pointing"]
        yield (
            f"pointing: {pointing['accuracy']:.1f} % of {pointing['phrases']} phrases "
            f"({pointing['low']:.1f} to {pointing['high']:.1f}); image center "
            f"{pointing['centre']:.1f} %, random point {pointing['random']:.1f} %"
        )
