"""``bifocal correct``."""

from difflib import get_close_matches
from pathlib import Path

import click

from bifocal.datasets.corrections import FILE, add_correction
from bifocal.durable import check_own
from bifocal.search.collection.collection import Collection
from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option


@click.command()
@click.argument("image", metavar="ID")
@click.argument("text")
@click.option("--not", "wrong", is_flag=True, help="The image does not show TEXT.")
@run_option
@click.option(
    "--to",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the corrections; by default corrections.csv of the run.",
)
def correct_command(
    image: str, text: str, wrong: bool, folder: Path | None, file: Path | None
) -> None:
    """Say that an image shows TEXT, or with --not that it does not: the next training learns it.

    ID is the id of an item, as 'bifocal search --json' prints it. Images of the split test are left
    out of the training, because they measure it.
    """
    run = latest_run(folder)
    collection = Collection.open(run / ARTIFACTS / "collection")
    if image not in collection.lookup:
        close = get_close_matches(image, collection.ids, n=1)
        nearest = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"{run} has no item {image!r}{nearest}")
    if file is None:
        check_own(file := run / FILE)
    add_correction(file, image, text, right=not wrong)
    click.echo(f"{file}: {image} {'does not show' if wrong else 'shows'} {text!r}")
