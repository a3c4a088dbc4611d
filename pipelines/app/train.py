"""``bifocal train``."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pandas as pd

from bifocal.datasets import Dataset, read_dataset
from bifocal.datasets.corrections import FILE as CORRECTIONS
from bifocal.datasets.splits import missing_splits
from bifocal.search.collection.collection import Collection
from pipelines.app.encoders import SMALL, encoder_folder
from pipelines.app.run_folder import (
    ARTIFACTS,
    RUNS,
    FolderOrAddress,
    check_owner,
    run_name,
    use_store_of,
    write_parameters,
)
from pipelines.app.stages import run_stages, stages_of_run
from pipelines.app.training.budget import fit_budget, parse_budget
from pipelines.app.training.recipe import compose
from pipelines.metrics import metrics_table
from runtime.artifacts import artifact_hash, read_manifest
from runtime.parameters import merge

if TYPE_CHECKING:
    from torch import Tensor

KS = (1, 5, 10)
GAIN = "zero_shot.json"


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
def train_command(
    directory: str,
    folder: Path | None,
    weights: Path | None,
    encoder: str | None,
    budget: str | None,
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
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
    values, recipe, reasons = compose(
        directory, weights, recipes, settings, encoder, last_layers=budget is None
    )
    if (folder / CORRECTIONS).is_file():
        own = {"corpus": {"corrections": str((folder / CORRECTIONS).absolute())}}
        values = merge(values, {"prepare_dataset": own}, parts=False)
    if not check_owner(folder, values, is_named=is_named):
        write_parameters(folder, values)  # a killed measurement of the budget has an owner
    shown = recipe.relative_to(Path.cwd()) if recipe.is_relative_to(Path.cwd()) else recipe
    click.echo(f"recipe: {shown}, {reasons}", err=True)
    use_store_of(folder)
    stages = stages_of_run()
    run_stages(folder, values, [stage for stage in stages if stage.name == "prepare_dataset"])
    counts = Counter(read_dataset(folder / ARTIFACTS / "dataset").images["split"])
    if problem := missing_splits(
        counts, dict.fromkeys(["train", "val", values["evaluate"]["split"]])
    ):
        raise ValueError(f"{directory} cannot be trained on: {problem}")
    if seconds is not None:
        values = fit_budget(seconds, start, folder, values)
    run_stages(folder, values, stages)
    images = Collection.open(folder / ARTIFACTS / "collection").description.items
    from rich.console import Console

    Console().print(metrics_table(folder))
    if (
        encoder is None
        and recipe.stem in ("sentences", "many")
        and not (recipes or settings or budget)
    ):
        encoder = SMALL
    if encoder is not None:
        click.secho(
            gain_over_small(folder, values, weights) if encoder == SMALL else gain_of_heads(folder),
            bold=True,
        )
    report = (folder / ARTIFACTS / "report" / "index.html").resolve().as_uri()
    click.echo(f"{images:,} images can be searched. {(time.monotonic() - start) / 60:.1f} minutes.")
    click.echo(f"Report: {report}")
    click.echo(f'Next: bifocal search "..." --run {folder}')


def gain_of_heads(folder: Path) -> str:
    """Return the gain of trained heads on the split "val", by which their training keeps or drops
    them."""
    found = read_manifest(folder / ARTIFACTS / "embedding")["metrics"]
    if "blend" not in found:
        return "The model has no residual heads: the gain of its training was not measured."
    sums = found["blended_recall_sum"], found["zero_shot_recall_sum"]
    kept = "the trained heads are kept" if found["blend"] else "the encoder is kept unchanged"
    validation = read_dataset(folder / ARTIFACTS / "dataset").split("val")
    return gain_sentence(
        sums, (found["blend_gain_low"], found["blend_gain_high"]), validation, "trained heads", kept
    )


def gain_over_small(folder: Path, values: Mapping[str, Any], weights: Path | None) -> str:
    """Return the gain of a model over the encoder small, as 'bifocal index' searches by it, on the
    evaluated split.

    A second call takes the sentence of the first one, unless parameters or results have changed.
    """
    from bifocal.metrics import recall_sum_gain

    metrics = folder / ARTIFACTS / "metrics"
    key = {"values": values, "metrics": artifact_hash(metrics)}
    known = json.loads((folder / GAIN).read_text()) if (folder / GAIN).is_file() else {}
    if known.get("key") != key:
        evaluated = read_dataset(folder / ARTIFACTS / "dataset").split(values["evaluate"]["split"])
        ranks = (
            trained_ranks(metrics, evaluated),
            untrained_ranks(encoder_folder(SMALL, weights), evaluated),
        )
        interval = recall_sum_gain(*ranks, owners(evaluated), KS, seed=values["seed"])
        sums = [
            100 * sum(float((part < k).double().mean()) for part in parts for k in KS)
            for parts in ranks
        ]
        doubt = (
            ""
            if interval[0] > 0
            else ", and 'bifocal index' with the encoder small may find as much"
        )
        kept = f"the trained model is exported{doubt}"
        known = {
            "key": key,
            "sentence": gain_sentence(sums, interval, evaluated, "the trained model", kept),
        }
        (folder / GAIN).write_text(json.dumps(known, indent=2) + "\n")
    return str(known["sentence"])


def gain_sentence(
    sums: Sequence[float], interval: tuple[float, float], split: Dataset, model: str, kept: str
) -> str:
    """Return the recall sums with and without training, the interval of their difference, and what
    is kept."""
    (trained, untrained), (low, high) = sums, interval
    return (
        f"Training {'helped' if low > 0 else 'did not clearly help'}: recall sum {trained:.1f} "
        f"with {model}, {untrained:.1f} without training, difference "
        f"{trained - untrained:+.1f} (95 % interval {low:+.1f} to {high:+.1f}) on "
        f"{len(split.captions)} held-out captions of {len(split.images)} images; {kept}."
    )


def trained_ranks(metrics: Path, dataset: Dataset) -> "list[Tensor]":
    """Return the expected ranks of an evaluated model, for each image and for each caption."""
    import torch

    table, found = pd.read_parquet(metrics / "ranks.parquet"), []
    ids = {
        "caption_retrieval": dataset.images["image_id"],
        "image_retrieval": dataset.captions["caption_id"],
    }
    for direction, queries in ids.items():
        ranks = table[table["direction"] == direction].set_index("query")["rank"]
        if not len(ranks):
            raise ValueError(
                "the model was not compared with the encoder: keep Retrieval in evaluate.evaluators"
            )
        found.append(torch.tensor(ranks.loc[queries.astype(str)].to_numpy(float)))
    return found


def untrained_ranks(encoders: Path, dataset: Dataset) -> "list[Tensor]":
    """Return the expected ranks by exported encoders without training, for each image and for each
    caption."""
    import torch

    from bifocal.metrics import retrieval_ranks
    from bifocal.onnx.encoders import Embedder

    embedder = Embedder(encoders)
    # One by one, as queries are: a batch would change the rounding of the int8 graph.
    texts = torch.cat(
        [torch.from_numpy(embedder.embed_sentences([text])) for text in dataset.captions["text"]]
    )
    files = [dataset.image_path(name) for name in dataset.images["image_id"]]
    images = torch.cat(
        [torch.from_numpy(embedder.embed_images([file.read_bytes()])) for file in files]
    )
    found = retrieval_ranks(images, texts, owners(dataset))
    return [part.expected() for part in found]


def owners(dataset: Dataset) -> "Tensor":
    """Return the row of each caption's image."""
    import torch

    return torch.from_numpy(
        pd.Index(dataset.images["image_id"]).get_indexer(dataset.captions["image_id"])
    )
