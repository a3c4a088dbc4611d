"""``python -m pipelines plan``."""

import json
import tempfile
from pathlib import Path

import click
import yaml

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
    help="Images in the largest sample; more if a training batch needs more.",
)
@options.resources
@click.option(
    "--fit",
    type=click.Path(path_type=Path),
    help="File for --resources of 'run': memory, time-outs and shards of the steps that get less than they need.",
)
@click.option("--json", "as_text", is_flag=True, help="Print JSON: durations in seconds, sizes in bytes.")
def plan(
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
    images: int,
    overlays: tuple[Path, ...],
    fit: Path | None,
    as_text: bool,
) -> None:
    """Estimate time, memory and disk of each stage on this machine.

    Runs the stages on three small samples of the corpus, which takes some minutes. The results are scaled to the whole
    corpus: by images, captions, or epochs x captions. If a published corpus is not on this machine, drawn scenes
    replace it and are scaled to its published size.
    """
    from rich.console import Console

    from pipelines.commands.compile import load_parameters, load_resources
    from pipelines.kubeflow.preflight.forecast import proposal
    from pipelines.plan.make import make_plan
    from pipelines.plan.show import as_json, tables

    with tempfile.TemporaryDirectory() as folder:
        planned = make_plan(
            load_parameters(recipes, settings), images, Path(folder), lambda line: click.echo(line, err=True)
        )
    if fit is not None:
        cluster = load_resources(None, overlays)
        proposals = {stage.name: values for stage in planned.stages if (values := proposal(stage, cluster))}
        fit.write_text(yaml.safe_dump({"steps": proposals}))
        click.echo(fit, err=True)
    if as_text:
        click.echo(json.dumps(as_json(planned), indent=2))
    else:
        Console().print(tables(planned))
