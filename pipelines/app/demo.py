"""``bifocal demo``."""

import time
from pathlib import Path

import click

QUERIES = ("three red stars on a beach", "two blue rhombuses", "two green triangles in the snow")


@click.command()
@click.argument("queries", metavar="[QUERY]...", nargs=-1)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("bifocal-demo"),
    show_default=True,
    help="Run folder to write: the model, its images, and the pictures.",
)
@click.option("-k", "count", type=click.IntRange(1, 5), default=5, show_default=True, help="Images to show.")
def demo_command(queries: tuple[str, ...], folder: Path, count: int) -> None:
    """Search 256 drawn scenes by each QUERY, with a model that is part of the package.

    Writes a picture for each query: the images that fit it best, and where in them it is. Nothing is downloaded.
    """
    from pipelines.app.demo_folder import WORDS, answer, unpack

    start = time.monotonic()
    model = unpack(folder)
    for query in queries or QUERIES:
        hits, picture = answer(model, query, count)
        click.secho(f'"{query}"', bold=True)
        for number, hit in enumerate(hits, start=1):
            click.echo(f'{number:3}.  {hit.score:.3f}  {hit.path}  "{hit.captions[0]}"')
        click.echo(f"-> {picture}")
    click.echo(f"{time.monotonic() - start:.1f} seconds, {len(model.collection)} images. The model knows {WORDS}.")
    click.echo(f'Next: bifocal search "a green cross on sand" --run {folder}')
    click.echo(f'      bifocal where {folder}/images/00213.jpg "red heart" --run {folder}')
    click.echo("      bifocal index DIR, on your own photographs: pip install 'bifocal-vse[train,cpu]'")
