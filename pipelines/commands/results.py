"""Commands that print results of a run: ``metrics`` and ``compare``."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bifocal.promotion.comparison import Difference
    from components.cluster.promote.spec import PromotionPolicy


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def metrics(folder: Path) -> None:
    """Print the metrics of the run in FOLDER: the default run, or runs/<folder>/<name> of a recipe."""
    from rich.console import Console

    from pipelines.metrics import metrics_table, ranking_table

    only_ranking = (folder / "artifacts/ranking_metrics").is_dir() and not (folder / "artifacts/metrics").is_dir()
    Console().print(ranking_table(folder) if only_ranking else metrics_table(folder), soft_wrap=False)


@click.command()
@click.option(
    "--metrics",
    type=click.Path(path_type=Path),
    default=Path("artifacts/metrics"),
    show_default=True,
    help="Artifact of the stage evaluate.",
)
@click.option("--alias", help="Alias of the registered version; by default the champion's in promotion.yaml.")
@click.option("--output", type=click.Path(path_type=Path), help="Also write the table as an HTML page.")
def compare(metrics: Path, alias: str | None, output: Path | None) -> None:
    """Compare an evaluation with a registered version, such as the champion, query by query.

    promotion.yaml has the model, the K of R@K and the bootstrap. Nothing is promoted.
    """
    from rich.console import Console
    from rich.table import Table

    from bifocal.promotion.comparison import comparison_page, difference_table
    from pipelines import policies

    policy = policies.load_promotion()
    version, differences = compare_with_version(metrics, policy, alias or policy.champion)
    name = f"{policy.model} version {version}"
    if not differences:
        raise ValueError(f"{metrics} and {name} share no query: evaluate both on the same dataset and split")
    table = difference_table(differences)
    printed = Table(*table.columns, title=f"{metrics} and {name}; percent, 95 % intervals of the difference")
    for row in table.rows:
        printed.add_row(*(cell if isinstance(cell, str) else cell.text for cell in row))
    Console().print(printed)
    if output is not None:
        output.write_text(comparison_page(name, table), encoding="utf-8")
        click.echo(output)


def compare_with_version(metrics: Path, policy: "PromotionPolicy", alias: str) -> tuple[int, "list[Difference]"]:
    """Compare the ranks in ``metrics`` with the version that has ``alias``: its number, one difference per metric."""
    import pandas as pd

    from bifocal.evaluation.rank_tables import RANKS
    from bifocal.promotion.comparison import compare_ranks
    from runtime.mlflow import get_version

    if not (metrics / RANKS).is_file():
        raise FileNotFoundError(f"{metrics / RANKS} does not exist: run evaluate first")
    version = get_version(policy.model, alias)
    if version is None:
        raise ValueError(
            f"no version of {policy.model} has the alias {alias!r}: 'python -m pipelines promote' makes the candidate "
            "the champion if it meets promotion.yaml; --alias candidate compares with the candidate itself"
        )
    with TemporaryDirectory() as folder:
        _, evaluation = version.download(Path(folder))
        if not (evaluation / RANKS).is_file():
            raise ValueError(f"version {version.number} of {policy.model} was registered without {RANKS}")
        reference = pd.read_parquet(evaluation / RANKS)
    current = pd.read_parquet(metrics / RANKS)
    options = {"resamples": policy.resamples, "seed": policy.seed}
    return version.number, compare_ranks(current, reference, policy.recall_at, **options)
