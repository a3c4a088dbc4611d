"""One training of a row of the leaderboard on photographs, and its measures."""

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks import scene_systems
from benchmarks.halving import Budget, IsHopeless, Rounds
from benchmarks.leaderboard_page import CORRECTED, Row
from benchmarks.photograph_rows import Board, inputs_of
from benchmarks.scene_systems import Artifacts, measures_file
from benchmarks.tuning import REPORTED, Training, Trial, stored, with_trial
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.hubness.bank import HubnessBank
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
from runtime.parameters import build_parts, options_of

STAGES = (
    "prepare_dataset",
    "extract_features",
    "vectorize_captions",
    "pretrain_sorter",
    "train_embedding",
)
TIMED_QUERIES, TIMED_STEPS = 50, 8


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
                options=options_of(FitOptions, params),
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
        # Of two images only: the steps would be lost in the noise of a long validation.
        short = [replace(phase, epochs=2, validator=Recall(images=2)) for phase in phases]
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
            "step": second / steps,
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
