"""Tables and figures of the evaluators as files, and where their inputs come from."""

from collections.abc import Mapping
from pathlib import Path

from bifocal.evaluation.base import Result
from components.evaluate.spec import COMPONENT
from runtime.artifacts import artifact_hash, read_manifest
from runtime.mlflow import git_commit, log_figure
from runtime.spec import flatten


def write_tables_and_figures(directory: Path, results: list[Result]) -> None:
    """Write tables as CSV and figures as PNG, and log the figures."""
    # DVC reports a declared plot without its file as an error: give it an empty table if its evaluator did not run.
    for plot in COMPONENT.plots:
        file = directory / Path(plot.path).name
        file.write_text(f"{plot.x},{plot.y}\n")
    (directory / "pictures").mkdir(exist_ok=True)
    for result in results:
        for name, table in result.tables.items():
            table.map(_escape_formula).to_csv(directory / f"{name}.csv", index=False)
        for name, figure in result.figures.items():
            figure.savefig(directory / "pictures" / f"{name}.png", dpi=120, metadata={"Software": None})
            log_figure(figure, f"{name}.png")


def _escape_formula(cell: object) -> object:
    """Return a cell that no spreadsheet runs as a formula: phrases and ids come from users."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def lineage(artifacts: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Return, for each artifact, its stage, parameters, metrics and hashes as texts; first the git commit."""
    entries: dict[str, dict[str, str]] = {"this checkout": {"git commit": git_commit()}}
    for name, path in artifacts.items():
        manifest = read_manifest(path)
        rows = {"artifact": artifact_hash(path), "code": str(manifest["code"])}
        rows |= {f"input {source}": str(digest) for source, digest in manifest["inputs"].items()}
        rows |= {key: str(value) for key, value in flatten(manifest["parameters"]).items()}
        rows |= {f"metric {key}": f"{value:g}" for key, value in manifest["metrics"].items()}
        entries[f"{name}, by {manifest['component']}"] = rows
    return entries
