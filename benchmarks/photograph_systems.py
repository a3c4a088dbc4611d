"""The rows of the leaderboard on photographs: their inputs, one training, and its measures."""

import copy
import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import isqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from torch.nn.functional import adaptive_avg_pool2d

from benchmarks import scene_systems
from benchmarks.common import ROOT
from benchmarks.halving import Budget, IsHopeless, Rounds
from benchmarks.leaderboard_page import CORRECTED, Row
from benchmarks.scene_systems import Artifacts, make, measures_file
from benchmarks.tuning import REPORTED, Search, Training, Trial, read_search, stored, with_trial
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.features.boxes import cell_boxes
from bifocal.hubness.bank import HubnessBank
from bifocal.image_encoders.rmac import grid_regions, region_maxima
from bifocal.metrics import retrieval_ranks
from bifocal.models import load_model, save_model
from bifocal.models.batch import (
    ImageCaptionPairs,
    dual_encoder,
    embed,
    embed_images,
    is_dual_encoder,
)
from bifocal.registry import build
from bifocal.sorters import load_sorter
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training import FitOptions, TrainingInputs, TrainingPhase, new_model, train_phases
from bifocal.training.initialization.base import initialize
from bifocal.training.loop import Row as Epoch
from bifocal.training.members import training_bank
from bifocal.training.validators import Recall, recall_metrics
from components.catalog import configurable_components
from components.train_embedding.spec import TrainEmbeddingParams
from runtime import parameters
from runtime.parameters import build_parts

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
IMAGES_PER_STEP, TIMED_STEPS = 64, 8
MEAN, CELLS, RMAC, MAPS = "mean", "cells", "R-MAC", "maps"
"""What a row reads of an image: the mean cell, a coarser grid of cells, the maxima of R-MAC's
regions, or the stored maps as they are."""
SCALES = 2


@dataclass(frozen=True)
class Board:
    """Rows, search and budget of the leaderboard on photographs.

    Attributes:
        images: number of training images, of images that choose, and the seed of the choice.
        side: cells per side of the coarser grid.
    """

    rows: tuple[Row, ...]
    search: Search
    budget: Budget
    images: tuple[int, int, int]
    side: int

    def row(self, name: str) -> Row:
        """Return the row of a name."""
        return next(row for row in self.rows if row.name == name)

    @property
    def protocol(self) -> str:
        """What two comparable records have in common, in one line."""
        train, held_out, _ = self.images
        search, budget = self.search, self.budget
        space = ", ".join(
            f"{name.replace('_', ' ')} {low:g} to {high:g}"
            for name, (low, high) in {**search.space, **search.closed_form}.items()
        )
        return (
            f"Protocol: {train} training images, {held_out} that choose; {search.trials} trials "
            f"by halving with factor {budget.reduction}; {budget.steps} steps, a validation after "
            f"each {budget.steps_per_round}; {self.side} x {self.side} cells; {space}."
        )


def read_board(file: Path = ROWS_FILE) -> Board:
    """Return the board of a file of rows, with the parameters of each row."""
    board = yaml.safe_load(file.read_text())
    base = parameters.load(ROOT / "params.yaml", [ROOT / board["features"]])
    search, budget = board["search"], Budget(**board["budget"])
    rows = [
        Row(
            group,
            name,
            row["differs"],
            _with_epochs(parameters.merge(base, row["overlay"]), budget.rounds),
            row["against"],
            row.get("chosen_for", row["against"] if group == "parts" else name),
            row.get("reads", MEAN),
        )
        for group in GROUPS
        for name, row in board[group].items()
    ]
    images = (search["images"]["train"], search["images"]["held_out"], search["seed"])
    return Board(tuple(rows), read_search(search), budget, images, board["side"])


def _with_epochs(values: dict[str, Any], rounds: int) -> dict[str, Any]:
    phases = [{**phase, "epochs": rounds} for phase in values["train_embedding"]["phases"]]
    return {**values, "train_embedding": {**values["train_embedding"], "phases": phases}}


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


def inputs_of(board: Board, row: Row, home: Path) -> dict[str, Path]:
    """Return dataset, features, texts and sorter of a row, with the lists of ``hold_out``; make
    what does not exist.

    The features are of all images: the features of an image do not depend on other images.
    """
    values = copy.deepcopy(dict(row.values))
    dataset = make("prepare_dataset", values, {}, home)
    features = make("extract_features", values, {"dataset": dataset}, home)
    corpus, (train, held_out, seed) = values["prepare_dataset"]["corpus"], board.images
    folder = home / f"held_out-{train}-{held_out}-{seed}"
    corpus["root"] = str(hold_out(ROOT / corpus["root"], folder, train, held_out, seed))
    dataset = make("prepare_dataset", values, {}, home)
    return {
        "dataset": dataset,
        "features": pooled(features, row.reads, board.side),
        "text": make("vectorize_captions", values, {"dataset": dataset}, home),
        "sorter": make("pretrain_sorter", values, {}, home),
    }


def pooled(features: Path, reads: str, side: int) -> Path:
    """Return the folder of what a row reads of stored cells, float16; compute it if it does not
    exist."""
    if reads == MAPS:
        return features
    folder = features.with_name(f"{features.name}-{reads}-{side if reads == CELLS else ''}")
    if folder.is_dir():
        return folder
    store, partial_folder = FeatureStore(features), folder.with_suffix(".partial")
    partial_folder.mkdir(exist_ok=True)
    cells = isqrt(store.regions)
    kept = side if reads == CELLS else 1
    regions = grid_regions(cells, cells, SCALES) if reads == RMAC else []
    boxes = (
        torch.tensor([[x, y, x + s, y + s] for y, x, s in regions]) / cells
        if regions
        else cell_boxes(kept, kept)
    )
    metadata = {
        name: value
        for name, value in store.metadata.items()
        if name not in ("regions", "dim", "boxes")
    } | {"pooled": folder.name}
    with FeatureWriter(
        partial_folder, regions=len(boxes), dim=store.dim, metadata=metadata
    ) as writer:
        for start in range(len(writer.written), len(store), IMAGES_PER_STEP):
            rows = range(start, min(start + IMAGES_PER_STEP, len(store)))
            grid = store.gather(list(rows)).features.float().transpose(1, 2)
            maps = grid.unflatten(2, (cells, cells))
            values = (
                region_maxima(maps, SCALES)
                if regions
                else adaptive_avg_pool2d(maps, kept).flatten(2).transpose(1, 2)
            )
            for row, image in zip(rows, values.numpy(), strict=True):
                writer.add(store.image_ids[row], image, boxes.numpy())
    partial_folder.rename(folder)
    return folder


def train(
    board: Board,
    home: Path,
    training: Training,
    is_hopeless: IsHopeless = lambda measure: False,
    end: float = math.inf,
) -> dict[str, Any] | None:
    """Train a row until ``is_hopeless`` or the end of the budget, and keep the weights of the best
    round of a whole training.

    Return the validation measure by round and the minutes of CPU time. A stored training is read,
    and asks ``is_hopeless`` the same questions; another one does not start after the time ``end``,
    and is None.
    """
    row = board.row(training.name)
    asked: list[float] = []

    def ask(measure: float) -> bool:
        asked.append(measure)
        return is_hopeless(measure)

    def compute() -> dict[str, Any]:
        inputs, started = inputs_of(board, row, home), time.process_time()
        values, folder = with_trial(row.values, training.trial), model_folder(training, home)
        curve = _train(board, values, inputs, training.seed, folder, ask)
        return {"curve": curve, "minutes": (time.process_time() - started) / 60}

    found = stored(
        measures_file(training, home),
        key_of(board, row, training),
        compute if time.time() < end else None,
    )
    for measure in found["curve"][len(asked) :] if found else ():
        is_hopeless(measure)
    return found


def key_of(board: Board, row: Row, training: Training) -> dict[str, Any]:
    """Return the parameters that identify a stored training."""
    values = with_trial(row.values, training.trial)
    budget = [getattr(board.budget, one.name) for one in fields(Budget)]
    return {stage: values[stage] for stage in STAGES} | {
        "images": list(board.images),
        "budget": budget,
        "reads": [row.reads, board.side],
    }


def model_folder(training: Training, home: Path) -> Path:
    """Return the folder of the weights of a training."""
    return home / "models" / measures_file(training, home).stem


def _train(
    board: Board,
    values: Mapping[str, Any],
    paths: Mapping[str, Path],
    seed: int,
    folder: Path,
    is_hopeless: IsHopeless,
) -> list[float]:
    params = validated(values)
    inputs = open_inputs(paths, params)
    model = new_model(params.model, inputs, seed=seed)
    curve: list[float] = []
    if params.initialization is not None:
        closed = build("bifocal.training.initialization", params.initialization)
        with TemporaryDirectory() as checkpoints:
            initialize(model, closed, inputs, checkpoints=Path(checkpoints), seed=seed)
    if params.phases:
        try:
            train_phases(
                model,
                phases_of(board.budget.steps_per_round, params, paths["sorter"]),
                inputs,
                options=FitOptions(
                    **{one.name: getattr(params, one.name) for one in fields(FitOptions)}
                ),
                seed=seed,
                on_epoch=partial(_report, curve, is_hopeless),
            )
        except (_StoppedError, FloatingPointError):
            return curve or [0.0]
    else:
        curve.append(Recall().prepare(inputs)(model)["recall_sum"])
        is_hopeless(curve[-1])
    save_model(folder, model)
    if bank := training_bank(model, inputs, params.hubness, seed):
        bank.write(folder)
    return curve


def validated(values: Mapping[str, Any]) -> TrainEmbeddingParams:
    """Return the typed section of the training."""
    params = parameters.validate(values, configurable_components().values())["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    return params


def open_inputs(paths: Mapping[str, Path], params: TrainEmbeddingParams) -> TrainingInputs:
    """Return the inputs of a training."""
    return TrainingInputs.open(paths["dataset"], paths["features"], paths["text"], params.precision)


def phases_of(steps: int, params: TrainEmbeddingParams, sorter: Path) -> list[TrainingPhase]:
    """Return the phases of a row, with batches in rounds of ``steps`` steps."""
    built = [
        TrainingPhase(**build_parts(phase, sorter=load_sorter(sorter))) for phase in params.phases
    ]
    return [
        replace(phase, batches=Rounds(phase.batches, steps), validator=phase.validation)
        for phase in built
    ]


class _StoppedError(Exception):
    """A hopeless trial stops."""


def _report(curve: list[float], is_hopeless: IsHopeless, epoch: Epoch) -> None:
    curve.append(epoch["monitor"])
    if is_hopeless(curve[-1]):
        raise _StoppedError


def reported(
    board: Board, home: Path, training: Training, minutes: float, end: float
) -> dict[str, Any] | None:
    """Return the measures of a whole training on the dev list; None if they do not exist, and the
    time ``end`` is over."""
    row = board.row(training.name)

    def compute() -> dict[str, Any]:
        paths = inputs_of(board, row, home)
        artifacts = Artifacts(
            paths["dataset"], paths["features"], paths["text"], model_folder(training, home)
        )
        measures = scene_systems.measure(artifacts, REPORTED, texts=True)
        return measures | {"minutes": minutes} | served(artifacts)

    return stored(
        measures_file(replace(training, split=REPORTED), home),
        key_of(board, row, training),
        compute if time.time() < end else None,
    )


def plan(board: Board, home: Path, name: str) -> dict[str, float]:
    """Return the CPU seconds of a row: to begin a training, of a step, and of a validation."""
    row = board.row(name)
    training = Training(name, Trial(), "plan", board.search.seeds[0])

    def compute() -> dict[str, Any]:
        paths, params = inputs_of(board, row, home), validated(row.values)
        if not params.phases:
            started = time.process_time()
            with TemporaryDirectory() as folder:
                _train(board, row.values, paths, 1, Path(folder), lambda measure: False)
            return {"start": time.process_time() - started, "step": 0.0, "validation": 0.0}
        mines = any(hasattr(phase.batches, "steps_per_epoch") for phase in params.phases)
        steps = board.budget.steps_per_round if mines else TIMED_STEPS
        phases = phases_of(steps, params, paths["sorter"])
        times = [time.process_time()]
        inputs = open_inputs(paths, params)
        model = new_model(params.model, inputs, seed=1)
        short = [replace(phase, epochs=2) for phase in phases]
        options = FitOptions(precision=params.precision, ema_decay=params.ema_decay)
        train_phases(
            model,
            short,
            inputs,
            options=options,
            on_epoch=lambda epoch: times.append(time.process_time()),
        )
        validate = phases[0].validation.prepare(inputs)
        started = time.process_time()
        validate(model)
        validation = time.process_time() - started
        first, second = times[1] - times[0], times[2] - times[1]
        return {
            "start": max(0.0, first - second),
            "step": max(0.0, second - validation) / steps,
            "validation": validation,
        }

    found = stored(measures_file(training, home), key_of(board, row, training), compute)
    assert found is not None
    return found


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
