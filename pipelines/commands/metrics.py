"""``python -m pipelines metrics``."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def metrics(folder: Path) -> None:
    """Print the metrics of the run in FOLDER: the default run, or runs/<folder>/<name> of a recipe."""
    from rich.console import Console

    from pipelines.metrics import metrics_table, ranking_table

    only_ranking = (folder / "artifacts/ranking_metrics").is_dir() and not (folder / "artifacts/metrics").is_dir()
    Console().print(ranking_table(folder) if only_ranking else metrics_table(folder), soft_wrap=False)
