"""``bifocal train``."""

import time
from collections import Counter
from pathlib import Path

import click

from bifocal.datasets import read_dataset
from bifocal.datasets.corrections import FILE as CORRECTIONS
from bifocal.datasets.splits import missing_splits
from bifocal.onnx.files import read_json
from bifocal.search.collection.collection import Collection
from pipelines.app.run_folder import (
    ARTIFACTS,
    RUNS,
    FolderOrAddress,
    check_owner,
    follow_links_option,
    run_name,
    use_store_of,
    write_parameters,
)
from pipelines.app.stages import run_stages, stages_of_run
from pipelines.app.training.budget import fit_budget, parse_budget
from pipelines.app.training.recipe import compose
from pipelines.metrics import metrics_table
from runtime.parameters import merge


@click.command()
@click.argument("directory", type=FolderOrAddress(exists=True, resolve_path=True))
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the run; by default runs/NAME of DIRECTORY.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Safetensors file with the weights of a timm backbone, or a folder with it and with "
    "the folder of a sentence encoder (also BIFOCAL_WEIGHTS); by default the packages of "
    "the extra small, or else a download. Without both, the backbone of 'bifocal demo' "
    "takes their place.",
)
@click.option(
    "--encoder",
    help="small, the default: EfficientNet-Lite2 and all-MiniLM-L6-v2 below a new model, "
    "which is compared with a search without training. Others are contrastive models to "
    "train heads on: clip, siglip2, multilingual, a model of open_clip, a repository of "
    "the Hugging Face hub, or a folder; the better of trained and untrained is exported. "
    "--weights replaces the download.",
)
@click.option(
    "--budget",
    help="Time limit, such as 30m: it chooses image size and epochs; all images are used.",
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
@follow_links_option
def train_command(
    directory: str,
    folder: Path | None,
    weights: Path | None,
    encoder: str | None,
    budget: str | None,
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
    follow_links: bool,
) -> None:
    """Train a model on DIRECTORY: images with captions.csv, .tsv, .jsonl or .parquet, or a .txt
    beside each image.

    DIRECTORY may be an address s3://bucket/folder: its images are copied to the run folder.
    The columns image and caption are recognized by their names;
    components/prepare_dataset/README.md has the formats. A killed run goes on with the same
    command.
    """
    start = time.monotonic()
    is_named, folder = folder is not None, folder or RUNS / run_name(directory)
    seconds = None if budget is None else parse_budget(budget)
    if budget is not None and encoder is not None:
        raise click.UsageError(
            "--budget chooses the size of images, which --encoder fixes: leave one of them out"
        )
    # The last layers need the image size of the recipe, which a budget may change.
    links = ("prepare_dataset.corpus.follow_links=true",) if follow_links else ()
    values, recipe, reasons = compose(
        directory, weights, recipes, (*settings, *links), encoder, last_layers=budget is None
    )
    if (folder / CORRECTIONS).is_file():
        own = {"corpus": {"corrections": str((folder / CORRECTIONS).absolute())}}
        values = merge(values, {"prepare_dataset": own}, parts=False)
    if not check_owner(folder, values, is_named=is_named):
        write_parameters(folder, values)  # a killed measurement of the budget has an owner
    shown = recipe.relative_to(Path.cwd()) if recipe.is_relative_to(Path.cwd()) else recipe
    click.echo(f"recipe: {shown}, {reasons}", err=True)
    use_store_of(folder)
    first = [stage for stage in stages_of_run() if stage.name == "prepare_dataset"]
    run_stages(folder, values, first)
    counts = Counter(read_dataset(folder / ARTIFACTS / "dataset").images["split"])
    if problem := missing_splits(
        counts, dict.fromkeys(["train", "val", values["evaluate"]["split"]])
    ):
        raise ValueError(f"{directory} cannot be trained on: {problem}")
    if seconds is not None:
        values = fit_budget(seconds, start, folder, values)
    run_stages(folder, values, stages_of_run(values))
    images = Collection.open(folder / ARTIFACTS / "collection").description.items
    from rich.console import Console

    Console().print(metrics_table(folder))
    click.secho(verdict(folder), bold=True)
    report = (folder / ARTIFACTS / "report" / "index.html").resolve().as_uri()
    click.echo(f"{images:,} images can be searched. {(time.monotonic() - start) / 60:.1f} minutes.")
    click.echo(f"Report: {report}")
    click.echo(f'Next: bifocal search "..." --run {folder}')


def verdict(folder: Path) -> str:
    """Return whether the training helped, as the evaluator ``Baselines`` has measured it."""
    from bifocal.evaluation.retrieval.baselines import gain_sentence

    metrics = read_json(folder / ARTIFACTS / "metrics" / "metrics.json")
    if "training" in metrics:
        return gain_sentence(metrics["training"])
    return (
        "Whether the training helped is not known: the report says why under Baselines, which "
        "evaluate.evaluators must name with untrained, and which needs one vector per image."
    )
