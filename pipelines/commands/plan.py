"""``python -m pipelines plan``."""

import json
from pathlib import Path

import click

from pipelines.commands import options


@click.command()
@options.recipes
@options.settings
@click.option(
    "--device",
    type=click.Choice(["h100", "a100", "rtx4090", "cpu"]),
    default="h100",
    show_default=True,
    help="Machine whose arithmetic gives the hours.",
)
@click.option(
    "--table",
    "page",
    type=click.Path(path_type=Path, exists=True),
    help="Write the table of all recipes of recipes/papers to this page, such as docs/papers.md, in some minutes.",
)
@click.option("--json", "as_text", is_flag=True, help="Print JSON: sizes in bytes, durations in seconds.")
def plan(recipes: tuple[Path, ...], settings: tuple[str, ...], device: str, page: Path | None, as_text: bool) -> None:
    """Print what the pipeline will need: downloads, artifacts, memory, steps and hours.

    Nothing is downloaded or computed. Sizes and memory follow from the published counts of the corpus and from a
    simulation of the model's code on shapes alone; hours assume 50 % of the device's peak arithmetic
    in matrix products, its memory bandwidth in all other operations, and 1 GB/s of disk.
    """
    from rich.console import Console

    from pipelines.commands.compile import load_parameters
    from pipelines.plan.devices import DEVICES, this_machine
    from pipelines.plan.make import make_plan
    from pipelines.plan.show import as_json, fill_table, over_limits, tables

    if page is not None:
        plans = {}
        for recipe in sorted(Path("recipes/papers").glob("*.yaml")):
            plans[recipe.stem] = make_plan(load_parameters([recipe], settings), DEVICES[device])
            for reason in over_limits(plans[recipe.stem]):
                click.echo(f"{recipe.stem}: {reason}")
        page.write_text(fill_table(page.read_text(encoding="utf-8"), plans), encoding="utf-8")
        return
    planned, limits = make_plan(load_parameters(recipes, settings), DEVICES[device]), this_machine(Path())
    if as_text:
        click.echo(json.dumps(as_json(planned, limits), indent=2))
    else:
        Console().print(tables(planned, limits))
