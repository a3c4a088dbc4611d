"""``bifocal train``."""

import time
from pathlib import Path

import click

from bifocal.search.collection.collection import Collection
from pipelines.app.run_folder import ARTIFACTS, RUNS, FolderOrAddress, run_name, use_store_of, write_parameters
from pipelines.app.stages import run_stages, stages_of_run
from pipelines.app.training.budget import fit_budget, parse_budget
from pipelines.app.training.contrastive import SMALL, compare_small, keep_better
from pipelines.app.training.parameters import training_parameters
from pipelines.metrics import metrics_table


@click.command()
@click.argument("directory", type=FolderOrAddress(exists=True, resolve_path=True))
@click.option(
    "--run", "folder", type=click.Path(path_type=Path), help="Folder of the run; by default runs/NAME of DIRECTORY."
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Safetensors file with the weights of a timm backbone, or a folder with it and with the folder of a sentence "
    "encoder (also BIFOCAL_WEIGHTS); by default both are downloaded. Without a network, the small backbone of "
    "'bifocal demo' takes their place.",
)
@click.option(
    "--encoder",
    help="small: EfficientNet-Lite2 and all-MiniLM-L6-v2 below a new model, which is compared with a search without "
    "training. Others are contrastive models to train heads on: clip, siglip2, multilingual, a model of open_clip, a "
    "repository of the Hugging Face hub, or a folder; the better of trained and untrained is exported. --weights "
    "replaces the download.",
)
@click.option("--budget", help="Time limit, such as 30m: it chooses image size and epochs; all images are used.")
@click.option(
    "--recipe",
    "recipes",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="File that overlays the parameters; may be repeated.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one value, as in --set train_embedding.model.dim=256; may be repeated.",
)
def train_command(
    directory: str,
    folder: Path | None,
    weights: Path | None,
    encoder: str | None,
    budget: str | None,
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
) -> None:
    """Train a model on DIRECTORY: images with captions.csv, .tsv, .jsonl or .parquet, or a .txt beside each image.

    DIRECTORY may be an address s3://bucket/folder: its images are copied to the run folder.
    The columns image and caption are recognized by their names; components/prepare_dataset/README.md has the formats.
    A killed run goes on with the same command.
    """
    start = time.monotonic()
    folder = folder or RUNS / run_name(directory)
    seconds = None if budget is None else parse_budget(budget)
    if budget is not None and encoder is not None:
        raise click.UsageError("--budget chooses the size of images, which --encoder fixes: leave one of them out")
    # The last layers need the image size of the recipe, which a budget may change.
    values = training_parameters(directory, weights, recipes, settings, encoder, last_layers=budget is None)
    write_parameters(folder, values)
    use_store_of(folder)
    if seconds is not None:
        values = fit_budget(seconds, start, folder, values)
        write_parameters(folder, values)
    if encoder not in (None, SMALL):
        values, sentence = keep_better(folder, values)
        click.secho(sentence, bold=True)
    run_stages(folder, values, stages_of_run())
    images = Collection.open(folder / ARTIFACTS / "collection").description.items
    from rich.console import Console

    Console().print(metrics_table(folder))
    if encoder == SMALL:
        click.secho(compare_small(folder, values, weights), bold=True)
    report = (folder / ARTIFACTS / "report" / "index.html").resolve().as_uri()
    click.echo(f"{images:,} images can be searched. {(time.monotonic() - start) / 60:.1f} minutes.")
    click.echo(f"Report: {report}")
    click.echo(f'Next: bifocal search "..." --run {folder}')
