"""``python -m pipelines metrics``."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def metrics(folder: Path) -> None:
    """Print the metrics of the run in FOLDER: the default run, or runs/<folder>/<name> of a recipe."""
    from rich.console import Console

    from pipelines.metrics import metrics_table

    Console().print(metrics_table(folder), soft_wrap=False)
