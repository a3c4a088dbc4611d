"""What does each part for little data give?

    python -m benchmarks run quality.little_data [--artifacts FOLDER] [--train 500] [--seeds 1]
    [--minutes 60]

An ablation on photographs: linear maps of the mean cell and of the caption's vector, and one part
changed in each row. Needs the artifacts dataset, features (a square grid of cells) and text (with
tf-idf) of recipes/flickr8k/best.yaml. Trains on --train images of the training list, and reports
the recall sum on 1,000 other images of that list, which also choose the epoch; the dev and test
lists are not used. Cells are averaged to 3 x 3. No training starts after --minutes: finished rows
are kept beside the artifacts and reported, and another run continues.
"""

import argparse
import json
import tempfile
import time
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common import ROOT, Report
from bifocal.datasets import Dataset, read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.metrics import retrieval_ranks
from bifocal.models import concatenate_models
from bifocal.models.base import Model
from bifocal.models.batch import dual_encoder, embed
from bifocal.registry import build
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from bifocal.training import FitOptions, TrainingPhase, new_model, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.inputs import TrainingInputs
from bifocal.training.members import training_bank
from bifocal.training.validators import recall_metrics

SIDE, VAL = 3, 1000
EPOCHS, DIM, LEARNING_RATE = 6, 256, 0.002
INFO_NCE: dict[str, Any] = {"name": "InfoNCELoss", "temperature": 0.07}
STRUCTURE = {
    "name": "StructurePreservingLoss",
    "caption_weight": 0.0,
    "image_weight": 0.0,
    "textual_weight": 1.0,
}
ROWS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "constant learning rate": {"schedule": "Constant"},
    "learned temperature": {"loss": INFO_NCE | {"learn_temperature": True}},
    "label smoothing 0.1": {"loss": INFO_NCE | {"label_smoothing": 0.1}},
    "words dropped, 0.3": {"augmentations": [{"name": "WordDrop", "probability": 0.3}]},
    "regions dropped, 0.3": {"augmentations": [{"name": "RegionDrop", "probability": 0.3}]},
    "weight decay 0.1 of matrices": {
        "optimizer": {"name": "AdamW", "weight_decay": 0.1},
        "decay_biases": False,
    },
    "structure terms, 0.1": {
        "loss": {"name": "WeightedSumLoss", "losses": [INFO_NCE, STRUCTURE], "weights": [1.0, 0.1]}
    },
    "SMILE's attention": {"image_encoder": "SMILEEncoder"},
    "three seeds, one vector": {"members": 3},
}


def pooled_inputs(
    artifacts: Path, images: int, folder: Path, grid_side: int = SIDE
) -> TrainingInputs:
    """Return ``images`` training and 1,000 validation images of the training list, with 3 x 3
    cells.

    Args:
        folder: receives the features.
        grid_side: cells per side; 1 gives only the mean cell.

    Raises:
        ValueError: the stored features have fewer cells per side.
    """
    whole = read_dataset(artifacts / "dataset")
    order = np.random.default_rng(0).permutation(whole.split("train").images["image_id"].to_numpy())
    splits = dict.fromkeys(order[:VAL], "val") | dict.fromkeys(order[VAL : VAL + images], "train")
    kept = whole.images[whole.images["image_id"].isin(splits)]
    captions = whole.captions[whole.captions["image_id"].isin(splits)]
    dataset = Dataset(
        kept.assign(split=kept["image_id"].map(splits)), captions, whole.phrases.iloc[:0], folder
    )
    store = FeatureStore(artifacts / "features")
    side = isqrt(store.regions)
    if side < grid_side:
        raise ValueError(
            f"the features have {side} x {side} cells, expected {grid_side} x {grid_side} or more"
        )
    with FeatureWriter(
        folder, regions=grid_side**2, dim=store.dim, metadata={}, images_per_file=500
    ) as writer:
        for start in range(0, len(kept), 50):
            ids = list(kept["image_id"].iloc[start : start + 50])
            cells = store.gather(store.rows(ids)).features.float()
            grid = cells.transpose(1, 2).unflatten(2, (side, side))
            means = (
                torch.nn.functional.adaptive_avg_pool2d(grid, grid_side).flatten(2).transpose(1, 2)
            )
            for image_id, regions in zip(ids, means.numpy(), strict=True):
                writer.add(image_id, regions)
    text = artifacts / "text"
    return TrainingInputs(dataset, FeatureStore(folder), TextStore(text), load_vectorizer(text))


def train(inputs: TrainingInputs, seed: int, changes: dict[str, Any]) -> Model:
    """Return the model of one row."""
    parts = {
        "image_encoder": changes.get("image_encoder", "LinearEncoder"),
        "text_encoder": "LinearEncoder",
    }
    model = new_model({"name": "TwoBranchModel", "dim": DIM, **parts}, inputs, seed=seed)
    phase = TrainingPhase(
        CaptionBatches(batch_size=480, captions_per_image=5),
        build("bifocal.losses", changes.get("loss", INFO_NCE)),
        epochs=EPOCHS,
        learning_rate=LEARNING_RATE,
        schedule=build(
            "bifocal.training.schedules", changes.get("schedule", {"name": "Cosine", "warmup": 0.1})
        ),
        augmentations=[
            build("bifocal.training.augmentations", part)
            for part in changes.get("augmentations", ())
        ],
    )
    train_phases(
        model, [phase], inputs, seed=seed, options=FitOptions(changes.get("optimizer", "Adam"))
    )
    return model


def recall_sums(inputs: TrainingInputs, model: Model) -> list[float]:
    """Return the recall sum on val, and that with the hubness correction."""
    pairs, bank = inputs.captions("val"), training_bank(model, inputs, "CSLS", seed=0)
    images, captions = embed(dual_encoder(model), pairs)
    assert bank is not None
    biases = [bank.image_bias(images.numpy()), bank.caption_bias(captions.numpy())]
    by_image, by_caption = (torch.from_numpy(bias) for bias in biases)
    return [
        recall_metrics(retrieval_ranks(images, captions, pairs.image_of_caption, biases=choice))[
            "recall_sum"
        ]
        for choice in (None, (by_image, by_caption))
    ]


def main() -> None:
    """Train every row with every seed, and report the mean recall sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--artifacts", type=Path, default=ROOT / "runs" / "flickr8k" / "best" / "artifacts"
    )
    parser.add_argument("--train", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--minutes", type=float, default=60.0)
    options = parser.parse_args()
    file = options.artifacts.parent / f"little_data_{options.train}.json"
    results: dict[str, list[float]] = json.loads(file.read_text()) if file.is_file() else {}
    missing = [
        (name, seed)
        for seed in options.seeds
        for name in ROWS
        if f"{name}, seed {seed}" not in results
    ]
    if missing and options.minutes > 0:
        with tempfile.TemporaryDirectory() as folder:
            deadline = time.monotonic() + 60 * options.minutes
            inputs = pooled_inputs(options.artifacts, options.train, Path(folder))
            for name, seed in missing:
                if time.monotonic() < deadline:
                    results[f"{name}, seed {seed}"] = row(inputs, ROWS[name], seed)
                    file.write_text(json.dumps(results, indent=1) + "\n")
    report, unit = Report("quality.little_data"), "recall sum"
    finished = [
        name for name in ROWS if all(f"{name}, seed {seed}" in results for seed in options.seeds)
    ]
    means = {
        name: np.mean([results[f"{name}, seed {seed}"] for seed in options.seeds], axis=0)
        for name in finished
    }
    if "baseline" not in means:
        parser.exit(1, "the baseline is not trained yet: raise --minutes\n")
    baseline = means["baseline"]
    report.add(
        "baseline", baseline[0], unit, reference=f"{options.train} training images, {VAL} ranked"
    )
    report.add("baseline, CSLS", baseline[1], unit, reference=f"{baseline[1] - baseline[0]:+.1f}")
    for name in finished[1:]:
        report.add(name, means[name][0], unit, reference=f"{means[name][0] - baseline[0]:+.1f}")
    report.write()


def row(inputs: TrainingInputs, changes: dict[str, Any], seed: int) -> list[float]:
    """Return the recall sums of one row with one seed."""
    seeds = [seed + 1000 * member for member in range(changes.get("members", 1))]
    return recall_sums(
        inputs, concatenate_models([train(inputs, member, changes) for member in seeds])
    )


if __name__ == "__main__":
    main()
