"""``bifocal export-site``."""

from pathlib import Path

import click

DIRECTORY = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command("export-site")
@click.argument("run", type=DIRECTORY)
@click.argument("destination", type=click.Path(path_type=Path), required=False)
@click.option(
    "--collection", type=DIRECTORY, help="Folder of the collection; by default the run's."
)
@click.option(
    "--index", type=DIRECTORY, help="Folder of the index; by default the run's, or exact search."
)
@click.option(
    "--images",
    type=DIRECTORY,
    help="Folder of the images; by default where the collection has them.",
)
@click.option(
    "--deletions",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File of 'bifocal serve' with the ids of deleted items, which the copy leaves out.",
)
@click.option(
    "--places/--no-places",
    default=True,
    help="Store for each image what shows where a phrase is, if the model has a pointing "
    "head: about 40 KB and 0.3 seconds per image.",
)
def export_site_command(
    run: Path,
    destination: Path | None,
    collection: Path | None,
    index: Path | None,
    images: Path | None,
    deletions: Path | None,
    places: bool,
) -> None:
    """Write the search page of RUN to the folder DESTINATION, by default RUN/site, for any web
    server.

    The model runs in the browser: the folder needs no program on the server. It holds captions,
    metadata and a thumbnail of every image. Search by an image needs 'bifocal serve'.
    """
    from bifocal.search.trained_model import ONNX
    from bifocal.serving.service.live import Deletions
    from bifocal.serving.service.models import RunSource
    from bifocal.serving.site.writer import write_site
    from pipelines.app.run_folder import latest_run

    folder = latest_run(run)
    written = folder / "site" if destination is None else destination
    model = RunSource(folder, collection, index, images).load()
    Deletions(deletions).apply(model.index)
    report = write_site(model, folder / ONNX, written, places)
    click.echo(f"{report.items:,} images, {report.pictures:,} of them with a thumbnail")
    click.echo(f"{report.megabytes:.1f} MB without the files of single images")
    if report.place_bytes:
        click.echo(f"{report.place_bytes / 1000:.1f} KB per image show where a phrase is")
    else:
        click.echo(
            "the copy does not show where a phrase is: the model has no pointing head, or "
            "--no-places is given"
        )
    click.echo(f"text encoder of int8: cosine with the model at least {report.cosine:.4f}")
    click.echo(f"-> {written}, for a web server: python -m http.server --directory {written}")
