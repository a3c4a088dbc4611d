"""``bifocal export``."""

import shutil
from pathlib import Path

import click

from bifocal.durable import new_folder
from bifocal.search.exports import FORMATS
from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option

MODEL, SENTENCES, IMMICH = MODELS = ("onnx", "sentence-transformers", "immich")
"""Formats of a model."""


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@run_option
@click.option(
    "--format",
    "name",
    type=click.Choice([*MODELS, *FORMATS]),
    default=MODEL,
    show_default=True,
    help="The model, or its collection of images for another tool.",
)
@click.option(
    "--collection",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of a collection; by default the run's collection.",
)
def export_command(
    destination: Path, folder: Path | None, name: str, collection: Path | None
) -> None:
    """Copy the model of a run to DESTINATION, or write its collection there for another tool.

    onnx is the graphs, with what turns sentences and images into their inputs;
    sentence-transformers the text encoder for that library; immich two graphs with a tokenizer,
    which Immich reads, and 'bifocal index --encoder'. The model card is README.md, which the
    Hugging Face hub reads.
    """
    if name in MODELS:
        if collection is not None:
            raise click.UsageError(
                f"--collection needs a format of a collection: {', '.join(FORMATS)}"
            )
        _write_model(latest_run(folder) / ARTIFACTS, name, destination)
    else:
        from bifocal.search.collection.collection import Collection
        from bifocal.search.exports import export_collection

        opened = Collection.open(collection or latest_run(folder) / ARTIFACTS / "collection")
        click.echo(f"{export_collection(opened, destination, name):,} images: {FORMATS[name]}")
    for file in sorted(destination.rglob("*")):
        if file.is_file():
            click.echo(f"{file.stat().st_size / 2**20:9.2f} MiB  {file.relative_to(destination)}")
    click.echo(f"-> {destination}")


def _write_model(artifacts: Path, name: str, destination: Path) -> None:
    card = artifacts / "metrics" / "MODEL_CARD.md"
    with new_folder(destination) as partial:
        if name == SENTENCES:
            if not (artifacts / "embedding").is_dir():
                raise ValueError(
                    f"{artifacts.parent} has no trained text encoder: see 'bifocal train'"
                )
            from bifocal.export.formats.sentence_transformers import export_sentence_transformer

            export_sentence_transformer(artifacts / "embedding", artifacts / "text", partial)
        elif name == IMMICH:
            from bifocal.export.formats.immich import export_immich

            export_immich(artifacts / "onnx", partial)
        else:
            shutil.copytree(artifacts / "onnx", partial, dirs_exist_ok=True)
        if card.is_file():
            shutil.copy(card, partial / "README.md")
