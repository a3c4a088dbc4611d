"""``bifocal evaluate``."""

from pathlib import Path

import click

from pipelines.app.run_folder import ARTIFACTS, PARAMETERS, latest_run, run_option, use_store_of
from pipelines.app.stages import run_stages
from pipelines.metrics import metrics_table
from runtime import parameters


@click.command()
@run_option
@click.option(
    "--split",
    type=click.Choice(["train", "val", "test"]),
    help="Split to evaluate; by default the run's split.",
)
def evaluate_command(folder: Path | None, split: str | None) -> None:
    """Evaluate the model of a run, print its metrics, and write the report."""
    from rich.console import Console

    from components.evaluate.spec import COMPONENT

    folder = latest_run(folder)
    if not (folder / ARTIFACTS / "embedding").is_dir():
        raise FileNotFoundError(
            f"{folder} has no training to evaluate: 'bifocal index' and 'bifocal demo' only "
            "search; see 'bifocal train'"
        )
    if (folder / ARTIFACTS / "metrics").is_symlink():
        raise ValueError(
            f"{folder} has artifacts of a flow: type 'python -m pipelines metrics {folder}'"
        )
    values = parameters.load(folder / PARAMETERS)
    values["evaluate"]["split"] = split or values["evaluate"]["split"]
    use_store_of(folder)
    run_stages(folder, values, [COMPONENT])
    Console().print(metrics_table(folder))
    click.echo(f"Report: {(folder / ARTIFACTS / 'report' / 'index.html').resolve().as_uri()}")
