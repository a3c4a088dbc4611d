"""The rows of the leaderboard on photographs: their training, and their measures."""

import copy
import random
import statistics
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks import scene_systems
from benchmarks.common import ROOT
from benchmarks.leaderboard_page import BASELINE, CORRECTED, Row
from benchmarks.scene_systems import Artifacts, make, measures_file
from benchmarks.tuning import REPORTED, VALIDATION, Training, stored, with_trial
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.hubness.bank import HubnessBank
from bifocal.metrics import retrieval_ranks
from bifocal.models import load_model
from bifocal.models.batch import (
    ImageCaptionPairs,
    dual_encoder,
    embed,
    embed_images,
    is_dual_encoder,
)
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training.validators import recall_metrics
from runtime import parameters

ROWS_FILE = ROOT / "benchmarks" / "quality" / "leaderboard_flickr8k.yaml"
STAGES = (
    "prepare_dataset",
    "extract_features",
    "vectorize_captions",
    "pretrain_sorter",
    "train_embedding",
)
GROUPS = ("systems", "parts")
TIMED_QUERIES = 50


def read_board() -> dict[str, Any]:
    """Return the file of the rows."""
    board: dict[str, Any] = yaml.safe_load(ROWS_FILE.read_text())
    return board


@cache
def read_rows() -> tuple[Row, ...]:
    """Return the rows of the leaderboard, with the parameters of each."""
    board = read_board()
    base = parameters.load(ROOT / "params.yaml", [ROOT / board["features"]])
    return tuple(
        Row(
            group,
            name,
            row["differs"],
            parameters.merge(base, row["overlay"]),
            row.get("against", BASELINE),
        )
        for group in GROUPS
        for name, row in board[group].items()
    )


def hold_out(root: Path, folder: Path, train: int, held_out: int, seed: int) -> Path:
    """Write a corpus: images of the training list, others of it as dev list, and the dev list as
    test list."""
    names = (root / "Flickr_8k.trainImages.txt").read_text().splitlines()
    random.Random(seed).shuffle(names)
    held, used = names[:held_out], names[held_out : held_out + train]
    if not (folder / "Flickr8k.token.txt").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        dev = (root / "Flickr_8k.devImages.txt").read_text().splitlines()
        for list_name, lines in (("train", used), ("dev", held), ("test", dev)):
            (folder / f"Flickr_8k.{list_name}Images.txt").write_text("\n".join(lines) + "\n")
        (folder / "images").symlink_to((root / "images").resolve())
        (folder / "Flickr8k.token.txt").write_bytes((root / "Flickr8k.token.txt").read_bytes())
    return folder


def inputs_of(values: dict[str, Any], home: Path) -> tuple[dict[str, Path], dict[str, Any]]:
    """Return dataset, features, texts and sorter of a row, and its parameters, with the lists of
    ``hold_out``.

    The features are of all images: the features of an image do not depend on other images.
    """
    values = copy.deepcopy(values)
    dataset = make("prepare_dataset", values, {}, home)
    features = make("extract_features", values, {"dataset": dataset}, home)
    corpus, (train, held_out, seed) = values["prepare_dataset"]["corpus"], images_of()
    folder = home / f"held_out-{train}-{held_out}-{seed}"
    corpus["root"] = str(hold_out(ROOT / corpus["root"], folder, train, held_out, seed))
    dataset = make("prepare_dataset", values, {}, home)
    text = make("vectorize_captions", values, {"dataset": dataset}, home)
    sorter = make("pretrain_sorter", values, {}, home)
    return {"dataset": dataset, "features": features, "text": text, "sorter": sorter}, values


def images_of() -> tuple[int, int, int]:
    """Return the number of training images, of images that choose, and the seed of the choice."""
    search = read_board()["search"]
    return search["images"]["train"], search["images"]["held_out"], search["seed"]


def of_search(values: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters of a row with the epochs of a trial of the search."""
    fraction, phases = read_board()["search"]["epochs"], values["train_embedding"]["phases"]
    shorter = [{**phase, "epochs": max(1, round(fraction * phase["epochs"]))} for phase in phases]
    return {**values, "train_embedding": {**values["train_embedding"], "phases": shorter}}


def measures_of(home: Path, training: Training, end: float) -> dict[str, Any] | None:
    """Return the stored measures of a training; if there are none before the time ``end``, train
    and measure."""
    (row,) = (row for row in read_rows() if row.name == training.name)
    changed = with_trial(row.values, training.trial)
    changed = of_search(changed) if training.split == VALIDATION else changed

    def compute() -> dict[str, Any]:
        inputs, values = inputs_of(changed, home)
        embedding = make("train_embedding", {**values, "seed": training.seed}, inputs, home)
        minutes = float((home / f"{embedding.name}.seconds").read_text()) / 60
        artifacts = Artifacts(inputs["dataset"], inputs["features"], inputs["text"], embedding)
        measures = scene_systems.measure(artifacts, training.split, texts=True) | {
            "minutes": minutes
        }
        return measures if training.split == VALIDATION else measures | served(artifacts)

    key = {stage: changed[stage] for stage in STAGES} | {"images": list(images_of())}
    return stored(measures_file(training, home), key, compute if time.time() < end else None)


def served(artifacts: Artifacts) -> dict[str, float]:
    """Return the corrected recall sum, millions of parameters, dimension and latency of a trained
    row."""
    model: Any = load_model(artifacts.embedding)
    dev = read_dataset(artifacts.dataset).split(REPORTED)
    pairs = ImageCaptionPairs(dev, FeatureStore(artifacts.features), TextStore(artifacts.text))
    parameters_millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    measures = {"parameters, M": parameters_millions, "dim": float(model.image_encoder.dim)}
    bank = HubnessBank.read(artifacts.embedding)
    if bank is not None:
        images, captions = embed(dual_encoder(model), pairs)
        biases = bank.image_bias(images.numpy()), bank.caption_bias(captions.numpy())
        by_image, by_caption = (torch.from_numpy(bias) for bias in biases)
        ranks = retrieval_ranks(
            images, captions, pairs.image_of_caption, biases=(by_image, by_caption)
        )
        measures[CORRECTED] = recall_metrics(ranks)["recall_sum"]
    if is_dual_encoder(model):
        measures["query, ms"] = query_milliseconds(
            model, pairs, artifacts.text, list(dev.captions["text"])
        )
    return measures


def query_milliseconds(
    model: Any, pairs: ImageCaptionPairs, text: Path, captions: Sequence[str]
) -> float:
    """Return the median time from a caption's words to the scores of all images, on one thread."""
    vectorizer, images = load_vectorizer(text), embed_images(model, pairs.image_batches(256))
    threads, times = torch.get_num_threads(), []
    torch.set_num_threads(1)
    with torch.inference_mode():
        for caption in captions[: TIMED_QUERIES + 5]:
            started = time.perf_counter()
            images @ model.embed_captions(vectorizer.vectorize([caption]))[0]
            times.append(time.perf_counter() - started)
    torch.set_num_threads(threads)
    return 1000 * statistics.median(times[5:])
