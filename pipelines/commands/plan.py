"""``python -m pipelines plan``."""

import json
import tempfile
from pathlib import Path

import click

from pipelines.commands import options


@click.command()
@options.recipes
@options.settings
@click.option(
    "--sample",
    "images",
    type=click.IntRange(30),
    default=300,
    show_default=True,
    help="Images of the largest of three samples; more if a training batch needs more.",
)
@click.option("--json", "as_text", is_flag=True, help="Print JSON: durations in seconds, sizes in bytes.")
def plan(recipes: tuple[Path, ...], settings: tuple[str, ...], images: int, as_text: bool) -> None:
    """Measure how long the pipeline will take on this machine, and its memory and disk, for each stage.

    Runs the stages on three small samples of the corpus, one process per stage, in some minutes, and scales them to
    the whole corpus: by images, captions, or epochs x captions. A published corpus that is not on this machine is
    replaced by drawn scenes and scaled to its published size.
    """
    from rich.console import Console

    from pipelines.commands.compile import load_parameters
    from pipelines.plan.make import make_plan
    from pipelines.plan.show import as_json, tables

    with tempfile.TemporaryDirectory() as folder:
        planned = make_plan(
            load_parameters(recipes, settings), images, Path(folder), lambda line: click.echo(line, err=True)
        )
    if as_text:
        click.echo(json.dumps(as_json(planned), indent=2))
    else:
        Console().print(tables(planned))
