"""``bifocal train --budget``: image size and epochs for the time given, from a short
measurement."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from bifocal.datasets import read_dataset
from bifocal.durable import write_json
from bifocal.onnx.files import read_json
from pipelines.app.run_folder import ARTIFACTS
from pipelines.app.stages import check_stages, run_checked, stages_of_run
from runtime import parameters

SIZES, EPOCHS = (224, 192, 160, 128), (3, 20)
"""Image sizes in pixels to try below the size of the parameters, largest first; fewest and most
epochs."""
RESERVE = 0.15
"""Fraction of the budget that is not planned: the measurement is short, and other programs take
time."""
FIXED, PER_IMAGE = 35.0, 0.015
"""Seconds of the stages around training on two cores, for any number of images, and for each image:
rough estimates."""
BEFORE = ("prepare_dataset", "vectorize_captions")
"""Stages that run before the choice: their time depends neither on the image size nor on the
epochs."""
SAMPLE, BATCH = 8, 64
FILE = "budget.json"


@dataclass(frozen=True)
class Costs:
    """Measured seconds per image with ``size`` pixels: features, which its area scales, and one
    training epoch.

    ``cells``: whether the area scales the epoch, too, because an image has a region per cell.
    """

    extraction: float
    epoch: float
    size: int
    cells: bool = True


@dataclass(frozen=True)
class Choice:
    """Pixels of an image's side and epochs to train, with the expected seconds from now on."""

    size: int
    epochs: int
    seconds: float


def parse_budget(text: str) -> float:
    """Return the seconds of a time such as "30m"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip().lower())
    if match is None or not float(match[1]):
        raise ValueError(f"--budget {text}: expected a time such as 90s, 30m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def choose(seconds: float, images: int, training_images: int, costs: Costs) -> Choice:
    """Return the largest image size with which the fewest epochs fit into the time, and the epochs
    that fit.

    All images are used. If not even the smallest size fits, the choice takes longer than the time.
    """
    sizes = (costs.size, *(size for size in SIZES if size < costs.size))
    for size in sizes:
        area = (size / costs.size) ** 2
        rest = FIXED + images * (PER_IMAGE + area * costs.extraction)
        epoch = training_images * costs.epoch * (area if costs.cells else 1)
        fitting = int(((1 - RESERVE) * seconds - rest) / epoch)
        if fitting >= EPOCHS[0] or size == sizes[-1]:
            break
    epochs = min(max(fitting, EPOCHS[0]), EPOCHS[1])
    return Choice(size, epochs, rest + epochs * epoch)


def measure(
    features: Mapping[str, Any], training: Mapping[str, Any], text: Path, files: Sequence[bytes]
) -> Costs:
    """Measure features of a few images, and two steps of the model with the captions in ``text``.

    The weights, which do not change the time, are not loaded.
    """
    import torch

    from bifocal.features import RegionBatch
    from bifocal.models import build_model
    from bifocal.models.batch import Batch
    from bifocal.onnx.images import open_image
    from bifocal.registry import build, split
    from bifocal.text import TextStore
    from bifocal.training.optimizers import build_optimizer
    from bifocal.training.precision import autocast_for

    if not isinstance(features["extractor"], Mapping) or "size" not in features["extractor"]:
        raise ValueError(
            "--budget chooses extract_features.extractor.size, which the parameters do not have"
        )
    extractor, captions = (
        build("bifocal.features.extractors", features["extractor"]),
        TextStore(text),
    )
    times = []
    for _ in range(2):  # the first time includes the start of the libraries
        start = time.monotonic()
        with torch.inference_mode():
            pixels = [extractor.preprocess(open_image(file)) for file in files[:SAMPLE]]
            regions = extractor.extract(pixels)
        times.append((time.monotonic() - start) / len(pixels))
    kind = captions.format.name
    model = build_model(
        training["model"],
        feature_dim=extractor.dim,
        text_dim=captions.dim,
        text_format=kind,
        vocabulary_size=len(captions.vocabulary) if kind == "tokens" else None,
    )
    optimizer = build_optimizer(training["optimizer"], model.parameters(), 1e-4)
    cells = regions[0].features.float().expand(BATCH, -1, -1).clone()
    boxes = (
        cells.new_zeros(*cells.shape[:2], 4)
        if regions[0].boxes is None
        else regions[0].boxes.expand(BATCH, -1, -1)
    )
    images = RegionBatch(cells, torch.ones(cells.shape[:2], dtype=torch.bool), boxes)
    count = BATCH * split(training["phases"][0]["batches"])[1].get("captions_per_image", 1)
    texts = captions.gather([row % len(captions) for row in range(count)])
    batch = Batch(
        [""] * BATCH, images, texts, torch.arange(BATCH).unsqueeze(1) == torch.arange(count) % BATCH
    )
    steps = []
    for _ in range(2):
        start = time.monotonic()
        with autocast_for("cpu", training["precision"])():
            model(batch).cross.sum().backward()
        optimizer.step()
        steps.append(training.get("members", 1) * (time.monotonic() - start) / BATCH)
    return Costs(times[-1], steps[-1], features["extractor"]["size"], cells=extractor.regions > 1)


def settings(choice: Choice, phases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parameters of a choice; the first phase gets the epochs, and its schedule keeps
    its shape."""
    first, *others = phases
    factor, schedule = choice.epochs / first["epochs"], first["schedule"]
    if isinstance(schedule, Mapping) and "milestones" in schedule:
        milestones = sorted({max(1, round(factor * epoch)) for epoch in schedule["milestones"]})
        schedule = {**schedule, "milestones": milestones}
    trained = {**first, "epochs": choice.epochs, "schedule": schedule}
    return {
        "extract_features": {"extractor": {"size": choice.size}},
        "train_embedding": {"phases": [trained, *others]},
    }


def fit_budget(
    seconds: float, start: float, folder: Path, values: dict[str, Any]
) -> dict[str, Any]:
    """Return the parameters whose training takes about ``seconds``, and print them.

    The stages before the choice run here. A later start of the same training goes on with its
    choice.
    """
    check_stages(values, stages_of_run())
    stages, file = stages_of_run(values), folder / FILE
    run_checked(folder, values, [stage for stage in stages if stage.name in BEFORE])
    images = read_dataset(folder / ARTIFACTS / "dataset")
    count, training = len(images.images), len(images.split("train").images)
    sections = {name: values[name] for name in ("extract_features", "train_embedding")}
    key = {"seconds": seconds, "images": count, **sections}
    known = read_json(file) if file.is_file() else {}
    if known.get("key") != key:
        files = [images.read(image_id) for image_id in images.images["image_id"][:SAMPLE]]
        costs = measure(
            sections["extract_features"],
            sections["train_embedding"],
            folder / ARTIFACTS / "text",
            files,
        )
        chosen = choose(seconds - (time.monotonic() - start), count, training, costs)
        known = {"key": key, "choice": asdict(chosen)}
        write_json(file, known)
    choice = Choice(**known["choice"])
    click.echo(
        f"Budget {seconds / 60:.1f} minutes: images of {choice.size} pixels, {choice.epochs} "
        f"epochs, expected {choice.seconds / 60:.1f} minutes. All {count:,} images are used, "
        f"{training:,} of them for training.",
        err=True,
    )
    if choice.seconds > seconds:
        click.secho(
            "warning: the budget is too short even for the smallest choice", fg="yellow", err=True
        )
    return parameters.merge(values, settings(choice, values["train_embedding"]["phases"]))
