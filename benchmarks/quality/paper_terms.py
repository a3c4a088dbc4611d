"""Why do the papers' terms add little to InfoNCE on photographs?

    python -m benchmarks run quality.paper_terms [--artifacts FOLDER] [--seeds 1 2 3] [--minutes 60]
    [--only REGEX]

Linear maps of the mean cell and of the caption's vector, as the row "baseline" of
quality.leaderboard_flickr8k; the poolings read 3 x 3 mean cells, and all 9 x 9 cells. Needs the
artifacts dataset, features and text of recipes/flickr8k/cells.yaml. Trains on 5,000 photographs of
the training list; the recall sum on 1,000 others of that list chooses the epoch and is reported, so
dev and test lists are not used. Finished rows are kept beside the artifacts, and another run
continues. The last values look inside one trained model: a batch of 192 training images.
"""

import argparse
import json
import re
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import ROOT, Report
from benchmarks.quality.little_data import pooled_inputs
from bifocal.models.base import Model
from bifocal.models.batch import Batch
from bifocal.registry import build
from bifocal.scores import Scores
from bifocal.training import FitOptions, TrainingPhase, new_model, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.inputs import TrainingInputs
from bifocal.training.validators import model_ranks, recall_metrics

TRAIN, DIM, IMAGES, EPOCHS = 5000, 512, 192, 8
STANDARD: dict[str, Any] = {
    "temperature": 0.07,
    "images": IMAGES,
    "captions": 5,
    "epochs": EPOCHS,
    "warmup": 0.05,
}
CONDITIONS: dict[str, dict[str, Any]] = {
    "standard": {},
    "temperature 0.03": {"temperature": 0.03},
    "temperature 0.2": {"temperature": 0.2},
    "48 images per batch": {"images": 48},
    "two captions of an image per batch": {"captions": 2},
    "constant learning rate": {"schedule": "Constant"},
    "16 epochs": {"epochs": 16},
}
WITHIN_CAPTIONS: dict[str, Any] = {
    "name": "StructurePreservingLoss",
    "caption_weight": 0.0,
    "image_weight": 0.0,
    "textual_weight": 1.0,
}
HARDEST: dict[str, Any] = {"name": "HardestTripletLoss", "margin": 0.2}
TERMS: dict[str, tuple[dict[str, Any] | None, float]] = {
    "InfoNCE": (None, 0.0),
    "with structure, 0.1": (WITHIN_CAPTIONS, 0.1),
    "with hardest negatives, 0.5": (HARDEST, 0.5),
}
"""Terms in every condition, with the weights of the leaderboard."""
WEIGHTS: dict[str, tuple[dict[str, Any] | None, float]] = {
    "with structure, 0.01": (WITHIN_CAPTIONS, 0.01),
    "with structure, 1": (WITHIN_CAPTIONS, 1.0),
    "with hardest negatives, 0.1": (HARDEST, 0.1),
    "with hardest negatives, 2": (HARDEST, 2.0),
}
INSIDE = "inside the model of InfoNCE after {} epochs, seed 1"
ALONE = {
    "hardest negatives alone": HARDEST,
    "structure-preserving loss alone": {
        "name": "StructurePreservingLoss",
        "image_weight": 2.0,
        "textual_weight": 0.2,
    },
}


def bean(maps: int, dropout: float, pooling: str = "max_min") -> dict[str, Any]:
    """Return BEAN's image encoder on stored cells."""
    frozen = {"backbone": None, "crop": None}
    return {"name": "BEANEncoder", "maps": maps, "dropout": dropout, "pooling": pooling, **frozen}


POOLINGS: dict[str, Any] = {
    "InfoNCE": "LinearEncoder",
    "SMILE's attention": "SMILEEncoder",
    "SMILE, mean of normalized cells": {"name": "SMILEEncoder", "ablation": "mean"},
    "BEAN's maximum + minimum": bean(512, 0.0),
    "BEAN, mean of its maps": bean(512, 0.0, "average"),
    "BEAN, dropout 0.5": bean(512, 0.5),
    "BEAN, 1,024 maps": bean(1024, 0.0),
}
CELLS = {"3 x 3 cells": 3, "9 x 9 cells": 9}
"""Cells per side of the rows that compare poolings."""


def rows() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Return each row's loss and the values that replace values of ``STANDARD``."""
    found = {}
    for condition, changes in CONDITIONS.items():
        for name, term in {**TERMS, **(WEIGHTS if not changes else {})}.items():
            found[f"{condition}: {name}"] = (loss(changes.get("temperature", 0.07), *term), changes)
    found |= {f"standard: {name}": (part, {}) for name, part in ALONE.items()}
    standard = loss(STANDARD["temperature"], None, 0.0)
    return found | {
        f"{cells}: {name}": (standard, {"pooling": pooling})
        for cells in CELLS
        for name, pooling in POOLINGS.items()
    }


def loss(temperature: float, term: dict[str, Any] | None, weight: float) -> dict[str, Any]:
    """Return InfoNCE plus a weighted term."""
    first = {"name": "InfoNCELoss", "temperature": temperature}
    return (
        {"name": "WeightedSumLoss", "losses": [first, term], "weights": [1.0, weight]}
        if term
        else first
    )


def train(
    inputs: TrainingInputs, seed: int, objective: Mapping[str, Any], changes: Mapping[str, Any]
) -> Model:
    """Return the model of one row with one seed."""
    values = {**STANDARD, **changes}
    parts = {
        "image_encoder": values.get("pooling", "LinearEncoder"),
        "text_encoder": "LinearEncoder",
    }
    model = new_model({"name": "TwoBranchModel", "dim": DIM, **parts}, inputs, seed=seed)
    schedule = values.get("schedule", {"name": "Cosine", "warmup": values["warmup"]})
    phase = TrainingPhase(
        CaptionBatches(
            batch_size=values["images"] * values["captions"], captions_per_image=values["captions"]
        ),
        build("bifocal.losses", objective),
        epochs=values["epochs"],
        learning_rate=0.002,
        schedule=build("bifocal.training.schedules", schedule),
    )
    train_phases(
        model, [phase], inputs, seed=seed, options=FitOptions(ema_decay=0.98, precision="bfloat16")
    )
    return model


def random_batch(inputs: TrainingInputs) -> Batch:
    """Return 192 training images with all their captions."""
    pairs = inputs.captions("train")
    chosen = torch.randperm(len(pairs.image_ids), generator=torch.Generator().manual_seed(0))[
        :IMAGES
    ]
    return pairs.batch(torch.isin(pairs.image_of_caption, chosen).nonzero().flatten())


def inside(model: Model, batch: Batch) -> dict[str, float]:
    """Return the weights of the negatives in InfoNCE, and norms and cosines of the terms'
    gradients, for one batch."""
    scores: Scores = model.eval()(batch)
    gradients = [
        gradient(model, build("bifocal.losses", part)(scores, batch.matches))
        for part in (loss(STANDARD["temperature"], None, 0.0), WITHIN_CAPTIONS, HARDEST)
    ]
    norms = [gradient.norm().item() for gradient in gradients]
    structure, hardest = (
        torch.cosine_similarity(gradients[0], other, dim=0).item() for other in gradients[1:]
    )
    with torch.no_grad():
        negatives = scores.cross.masked_fill(batch.matches, -torch.inf)
        shares = (negatives / STANDARD["temperature"]).softmax(dim=1)
        image, caption = batch.matches.nonzero(as_tuple=True)
        violated = scores.cross[image, caption] < negatives.amax(dim=1)[image] + HARDEST["margin"]
    return {
        "weight of the hardest negative caption in InfoNCE, %": 100
        * shares.amax(dim=1).mean().item(),
        "effective number of negative captions in InfoNCE": (1 / shares.square().sum(dim=1))
        .mean()
        .item(),
        "pairs that violate the hinge on the hardest caption, %": 100
        * violated.float().mean().item(),
        "gradient norm of the structure term, relative to InfoNCE": norms[1] / norms[0],
        "gradient norm of the hardest negatives, relative to InfoNCE": norms[2] / norms[0],
        "cosine of the gradients of InfoNCE and the structure term": structure,
        "cosine of the gradients of InfoNCE and the hardest negatives": hardest,
    }


def gradient(model: Model, value: torch.Tensor) -> torch.Tensor:
    """Return the gradient of ``value`` as one vector."""
    weights = list(model.parameters())
    parts = torch.autograd.grad(
        value, weights, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([part.flatten() for part in parts])


def measure(
    results: dict[str, Any],
    file: Path,
    artifacts: Path,
    todo: Sequence[tuple[str, int]],
    end: float,
) -> None:
    """Train rows with seeds until the monotonic time ``end``, and write the recalls of each to
    ``file``."""
    found = rows()
    for side in (1, *CELLS.values()):
        chosen = [
            (name, seed) for name, seed in todo if CELLS.get(name.partition(": ")[0], 1) == side
        ]
        if not chosen or time.monotonic() > end:
            continue
        with tempfile.TemporaryDirectory() as folder:
            inputs = pooled_inputs(artifacts, TRAIN, Path(folder), side)
            for name, seed in chosen:
                if time.monotonic() < end:
                    model = train(inputs, seed, *found[name])
                    results[f"{name}, seed {seed}"] = recall_metrics(
                        model_ranks(model, inputs.captions("val"))
                    )
                    file.write_text(json.dumps(results, indent=1) + "\n")
            for epochs in (1, EPOCHS) if side == 1 else ():
                if INSIDE.format(epochs) not in results and time.monotonic() < end:
                    model = train(
                        inputs, 1, loss(STANDARD["temperature"], None, 0.0), {"epochs": epochs}
                    )
                    results[INSIDE.format(epochs)] = inside(model, random_batch(inputs))
                    file.write_text(json.dumps(results, indent=1) + "\n")


def report(results: Mapping[str, Any], seeds: Sequence[int]) -> Report:
    """Return the mean recall sum of each finished row, with its gain over InfoNCE under the same
    condition."""
    found, unit = Report("quality.paper_terms"), "recall sum"
    for name in rows():
        keys = {seed: f"{name}, seed {seed}" for seed in seeds}
        stored = {seed: results[key]["recall_sum"] for seed, key in keys.items() if key in results}
        if not stored:
            continue
        alone = f"{name.partition(': ')[0]}: InfoNCE"
        gains = [
            value - results[f"{alone}, seed {seed}"]["recall_sum"] for seed, value in stored.items()
        ]
        spread = f" ± {statistics.stdev(gains):.1f}" if len(gains) > 1 else ""
        gain = "" if name == alone else f"{statistics.mean(gains):+.1f}{spread} over InfoNCE, "
        found.add(
            name, statistics.mean(stored.values()), unit, reference=f"{gain}seeds: {len(stored)}"
        )
    for epochs in (1, EPOCHS):
        for name, value in results.get(INSIDE.format(epochs), {}).items():
            found.add(f"standard: InfoNCE after epoch {epochs}: {name}", value)
    return found


def main() -> None:
    """Train every row with every seed, and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--artifacts", type=Path, default=ROOT / "runs" / "flickr8k" / "fast" / "artifacts"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="train only the rows whose names match"
    )
    options = parser.parse_args()
    file = options.artifacts.parent / "paper_terms.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    todo = [
        (name, seed) for seed in options.seeds for name in rows() if re.search(options.only, name)
    ]
    missing = [(name, seed) for name, seed in todo if f"{name}, seed {seed}" not in results]
    measure(results, file, options.artifacts, missing, time.monotonic() + 60 * options.minutes)
    report(results, options.seeds).write()


if __name__ == "__main__":
    main()
