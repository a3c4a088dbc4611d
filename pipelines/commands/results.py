"""Commands that print results of a run: ``metrics`` and ``compare``."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from pipelines import policies
from pipelines.commands.project import folder_argument, policy_file, project_option

if TYPE_CHECKING:
    from bifocal.promotion.comparison import Comparison
    from bifocal.promotion.comparison_files import Training
    from bifocal.report.sections import Table


@click.command()
@project_option
@folder_argument
def metrics(folder: Path) -> None:
    """Print the metrics of the run in FOLDER: the default run, or runs/<folder>/<name> of a
    recipe."""
    from rich.console import Console

    from pipelines.metrics import metrics_table, ranking_table

    only_ranking = (folder / "artifacts/ranking_metrics").is_dir() and not (
        folder / "artifacts/metrics"
    ).is_dir()
    Console().print(
        ranking_table(folder) if only_ranking else metrics_table(folder), soft_wrap=False
    )


@click.command()
@project_option
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Trainings of each recipe, from the recipe's seed on.",
)
@click.option(
    "--metrics",
    type=click.Path(path_type=Path),
    default=Path("artifacts/metrics"),
    show_default=True,
    help="Without RUNS: artifact of the stage evaluate, which is compared with a registered "
    "version.",
)
@click.option(
    "--alias",
    help="Without RUNS: alias of the version; by default the champion's in promotion.yaml.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the page, the chart and the tables; with RUNS, by default in runs/compare.",
)
def compare(
    runs: Sequence[Path], seeds: int, metrics: Path, alias: str | None, output: Path | None
) -> None:
    """Compare recipes or runs over seeds, or an evaluation with a registered version, query by
    query.

    \b
    python -m pipelines compare recipes/flickr8k/smile.yaml recipes/mine/loss.yaml --seeds 3
    python -m pipelines compare runs/flickr8k/smile runs/mine/loss
    python -m pipelines compare --alias champion

    RUNS are recipes, or folders of finished runs; the others are compared with the first. A recipe
    is trained with each seed in runs/<folder>/<name>/seed-<seed>, up to the evaluation. What is
    finished is kept, and a killed command goes on. Equal stages run once: data, features and texts
    have the seed of the recipe.

    Without RUNS, the version is the champion of promotion.yaml, or has --alias. Nothing is
    promoted.
    """
    from rich.console import Console
    from rich.table import Column
    from rich.table import Table as RichTable

    from bifocal.progress import plain
    from bifocal.promotion.comparison_files import write_comparison

    if len(runs) == 1:
        raise click.UsageError(
            f"only {runs[0]} is given: name two or more recipes or folders of runs, or none"
        )
    trainings: dict[str, list[Training]] = {}
    blocks: list[Table] = []
    if runs:
        title, comparisons, trainings, blocks = compare_runs(runs, seeds)
        output = output or Path("runs/compare") / "-".join(run.stem or "run" for run in runs)
    else:
        title, comparisons = compare_with_version(metrics, alias)
    for table in [*(comparison.table() for comparison in comparisons), *blocks]:
        printed = RichTable(
            *(Column(plain(name)) for name in table.columns),
            title=plain(table.title or f"{title}; percent, 95 % intervals"),
        )
        for row in table.rows:
            printed.add_row(*(plain(cell if isinstance(cell, str) else cell.text) for cell in row))
        Console().print(printed)
    for comparison in comparisons:
        click.echo(comparison.verdict())
    if output is not None:
        write_comparison(output, title, comparisons, trainings, blocks)
        click.echo(output / "index.html")


def compare_runs(
    paths: Sequence[Path], seeds: int
) -> "tuple[str, list[Comparison], dict[str, list[Training]], list[Table]]":
    """Train what is missing; compare each system with the first; return title, comparisons,
    trainings by system, and tables of them."""
    from bifocal.promotion.comparison import compare_ranks
    from bifocal.report.sections import Table
    from pipelines.seeds import differing, read_system, train_missing

    policy, systems = (
        policies.load_promotion(policy_file()),
        [read_system(path, seeds) for path in paths],
    )
    train_missing(systems)
    reference, *others = names = [system.name for system in systems]
    if len({*names}) < len(names):
        reference, *others = names = [path.as_posix() for path in paths]
    ranks = dict(zip(names, (system.ranks() for system in systems), strict=True))
    options = {"resamples": policy.resamples, "seed": policy.seed}
    found = [
        compare_ranks(
            {name: ranks[name]}, {reference: ranks[reference]}, policy.recall_at, **options
        )
        for name in others
    ]
    comparisons = [comparison for comparison in found if comparison is not None]
    if len(comparisons) < len(found):
        raise ValueError(
            f"{' and '.join(names)} share no query: give them the same corpus and evaluate.split"
        )
    trainings = {name: system.trainings() for name, system in zip(names, systems, strict=True)}
    rows = [["seeds", *(str(len(ones)) for ones in trainings.values())]]
    for fact, format_mean in (("parameters", ",.0f"), ("steps", ",.0f"), ("minutes", ".1f")):
        cells = []
        for ones in trainings.values():
            known = [getattr(one, fact) for one in ones if getattr(one, fact) is not None]
            cells.append(format(mean(known), format_mean) if known else "-")
        rows.append([f"{fact} of a training", *cells])
    different = Table(
        "Parameters that differ; all others are equal", ["", *names], differing(systems), text=True
    )
    return (
        " and ".join(names),
        comparisons,
        trainings,
        [Table("Trainings", ["", *names], rows, text=True), different],
    )


def compare_with_version(metrics: Path, alias: str | None) -> "tuple[str, list[Comparison]]":
    """Compare the ranks in ``metrics`` with the version that has ``alias``."""
    import pandas as pd

    from bifocal.evaluation.rank_tables import RANKS
    from bifocal.promotion.comparison import compare_ranks
    from runtime.mlflow import get_version

    policy = policies.load_promotion(policy_file())
    alias = alias or policy.champion
    if not (metrics / RANKS).is_file():
        raise FileNotFoundError(f"{metrics / RANKS} does not exist: run evaluate first")
    version = get_version(policy.model, alias)
    if version is None:
        raise ValueError(
            f"no version of {policy.model} has the alias {alias!r}: 'python -m pipelines "
            "promote' makes the candidate the champion if it meets promotion.yaml; --alias "
            "candidate compares with the candidate itself"
        )
    with TemporaryDirectory() as folder:
        evaluation = version.download_evaluation("", Path(folder))
        if not (evaluation / RANKS).is_file():
            raise ValueError(
                f"version {version.number} of {policy.model} was registered without {RANKS}"
            )
        reference = pd.read_parquet(evaluation / RANKS)
    name = f"{policy.model} version {version.number}"
    ours, theirs = {"this run": [pd.read_parquet(metrics / RANKS)]}, {name: [reference]}
    comparison = compare_ranks(
        ours, theirs, policy.recall_at, resamples=policy.resamples, seed=policy.seed
    )
    if comparison is None:
        raise ValueError(
            f"{metrics} and {name} share no query: evaluate both on the same dataset and split"
        )
    return f"This run and {name}", [comparison]
