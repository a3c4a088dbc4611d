"""``bifocal export``."""

import shutil
from pathlib import Path

import click

from bifocal.durable import new_folder
from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option

FORMATS = ("onnx", "parquet")


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@run_option
@click.option(
    "--format",
    "name",
    type=click.Choice(FORMATS),
    default=FORMATS[0],
    show_default=True,
    help="The graphs of the model, or a table of its collection with vectors.",
)
@click.option(
    "--collection",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of a collection; by default the run's collection.",
)
def export_command(
    destination: Path, folder: Path | None, name: str, collection: Path | None
) -> None:
    """Copy the model of a run to DESTINATION, or write its collection there for other tools.

    onnx is the graphs, with what turns sentences and images into their inputs; the model card is
    README.md, which the Hugging Face hub reads. parquet is a table with vectors, which Qdrant,
    pgvector and LanceDB import.
    """
    if name == "parquet":
        from bifocal.search.collection.collection import Collection
        from bifocal.search.exports import export_collection

        opened = Collection.open(collection or latest_run(folder) / ARTIFACTS / "collection")
        click.echo(f"{export_collection(opened, destination):,} images")
    elif collection is not None:
        raise click.UsageError("--collection needs --format parquet")
    else:
        artifacts = latest_run(folder) / ARTIFACTS
        card = artifacts / "metrics" / "MODEL_CARD.md"
        with new_folder(destination) as partial:
            shutil.copytree(artifacts / "onnx", partial, dirs_exist_ok=True)
            if card.is_file():
                shutil.copy(card, partial / "README.md")
    for file in sorted(destination.rglob("*")):
        if file.is_file():
            click.echo(f"{file.stat().st_size / 2**20:9.2f} MiB  {file.relative_to(destination)}")
    click.echo(f"-> {destination}")
