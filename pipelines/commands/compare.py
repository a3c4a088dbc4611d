"""``python -m pipelines compare``."""

from pathlib import Path

import click


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

    The model, the K of R@K and the bootstrap are those of promotion.yaml. Nothing is promoted.
    """
    from rich.console import Console
    from rich.table import Table

    from pipelines.promotion import policy as policies
    from pipelines.promotion.compare import compare_with_version, comparison_page, difference_table

    policy = policies.load()
    version, differences = compare_with_version(
        metrics, policy.model, alias or policy.champion, policy.recall_at, resamples=policy.resamples, seed=policy.seed
    )
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
