"""``bifocal train``."""

import re
import time
from pathlib import Path
from typing import Any

import click

from bifocal.datasets import read_dataset
from bifocal.search.collection.collection import Collection
from pipelines.app.backbones import DEMO_WARNING, demo_section, download_problem, features_section, weights_file
from pipelines.app.budget import SAMPLE, choose, measure, parse_budget, read_choice, write_choice
from pipelines.app.budget import settings as budget_settings
from pipelines.app.run_folder import ARTIFACTS, RUNS, FolderOrAddress, shipped_file, use_store_of, write_parameters
from pipelines.app.stages import run_stages, stages_of_run
from pipelines.metrics import metrics_table
from runtime import parameters
from runtime.s3.uri import is_remote


@click.command()
@click.argument("directory", type=FolderOrAddress(exists=True, resolve_path=True))
@click.option(
    "--run", "folder", type=click.Path(path_type=Path), help="Folder of the run; by default runs/NAME of DIRECTORY."
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Safetensors file with the weights of a timm backbone (also BIFOCAL_WEIGHTS); by default timm downloads them. "
    "Without a network, the small backbone of 'bifocal demo' takes their place.",
)
@click.option(
    "--budget", help="Time to train for, such as 30m: chooses image size and epochs, and uses all images all the same."
)
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
    folder = folder or RUNS / re.sub(r"[^\w.-]+", "_", Path(directory).stem)
    seconds = None if budget is None else parse_budget(budget)
    values = training_parameters(directory, weights, recipes, settings)
    write_parameters(folder, values)
    use_store_of(folder)
    if seconds is not None:
        values = _within(seconds, start, folder, values)
        write_parameters(folder, values)
    run_stages(folder, values, stages_of_run())
    images = Collection.open(folder / ARTIFACTS / "collection").description.items
    from rich.console import Console

    Console().print(metrics_table(folder))
    report = (folder / ARTIFACTS / "report" / "index.html").resolve().as_uri()
    click.echo(f"{images:,} images can be searched. {(time.monotonic() - start) / 60:.1f} minutes.")
    click.echo(f"Report: {report}")
    click.echo(f'Next: bifocal search "..." --run {folder}')


def _within(seconds: float, start: float, folder: Path, values: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters whose training takes about ``seconds``, and print them."""
    run_stages(folder, values, [stage for stage in stages_of_run() if stage.name == "prepare_dataset"])
    images = read_dataset(folder / ARTIFACTS / "dataset")
    count, training = len(images.images), len(images.split("train").images)
    features, training_section = values["extract_features"], values["train_embedding"]
    key = {"seconds": seconds, "images": count, "extract_features": features, "train_embedding": training_section}
    choice = read_choice(folder, key)
    if choice is None:
        files = [images.image_path(image_id) for image_id in images.images["image_id"][:SAMPLE]]
        costs = measure(features, training_section["model"]["dim"], files)
        choice = choose(seconds - (time.monotonic() - start), count, training, costs)
        write_choice(folder, key, choice)
    click.echo(
        f"Budget {seconds / 60:.1f} minutes: images of {choice.size} pixels, {choice.epochs} epochs, expected "
        f"{choice.seconds / 60:.1f} minutes. All {count:,} images are used, {training:,} of them for training.",
        err=True,
    )
    if choice.seconds > seconds:
        click.secho("warning: the budget is too short even for the smallest choice", fg="yellow", err=True)
    return parameters.merge(values, budget_settings(choice, training_section["phases"]))


def training_parameters(
    directory: str, weights: Path | None, recipes: tuple[Path, ...], settings: tuple[str, ...]
) -> dict[str, Any]:
    """Return the parameters of a training on a folder of images.

    Args:
        directory: absolute path, or address on S3.

    Raises:
        ValueError: the weights belong to no known backbone.
        FileNotFoundError: the file of weights does not exist.
    """
    values = parameters.load(shipped_file("params.yaml"), [shipped_file("recipes/own/images.yaml")])
    values["prepare_dataset"]["corpus"]["root"] = directory
    values["prepare_dataset"]["copy_images"] = is_remote(directory)  # later commands need no S3
    downloaded = values["extract_features"]
    file = weights_file(weights)
    if file is not None:
        values = parameters.merge(values, {"extract_features": features_section(file)})
    for recipe in recipes:
        values = parameters.overlay(values, recipe)
    values = parameters.with_settings(values, settings)
    if values["extract_features"] == downloaded and (problem := download_problem(downloaded)) is not None:
        click.secho(DEMO_WARNING.format(problem=problem), fg="yellow", err=True)
        values = parameters.merge(values, {"extract_features": demo_section()})
    return values
