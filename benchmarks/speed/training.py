"""How much of a training step is overhead?

    python -m benchmarks run speed.training [--steps 6]

SMILE on stored features, in the sizes of the thesis (section 3.3.1): batches of 192 captions, 36 x
2048 features of each image from the store on disk, d = 2400. Overhead is reading, prefetching,
moving, clipping, checks, checkpoints and progress. A step takes seconds without a GPU; the overhead
in seconds is about the same with one.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.common import Report
from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.losses import HardestTripletLoss
from bifocal.models import build_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore
from bifocal.text.vectorizers import Word2Vec
from bifocal.text.vectorizers.base import write_text
from bifocal.training import FitOptions, TrainingPhase, fit
from bifocal.training.batches import CaptionBatches
from bifocal.training.batches.base import PreparedBatches
from bifocal.training.checkpoints import save_checkpoint
from bifocal.training.validators import model_ranks, recall_metrics

IMAGES, REGIONS, FEATURE_DIM, DIM, BATCH = 600, 36, 2048, 2400, 192
WORDS, WORD_DIM, CAPTION_WORDS = 500, 620, 10
CHECKPOINT_EVERY_SECONDS = 300.0
MAX_OVERHEAD = 5.0


class Clock:
    """Measures the seconds inside wrapped functions, and the time at the end of each step."""

    def __init__(self) -> None:
        self.inside = 0.0
        self.steps: list[tuple[float, float]] = []

    def timed(self, function: Callable[..., Any], *, ends_step: bool = False) -> Callable[..., Any]:
        @wraps(function)
        def measured(*arguments: Any, **named: Any) -> Any:
            start = self.now()
            result = function(*arguments, **named)
            end = self.now()
            self.inside += end - start
            if ends_step:
                self.steps.append((end, self.inside))
            return result

        return measured

    @staticmethod
    def now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()


def collection(folder: Path) -> tuple[Dataset, FeatureStore, TextStore]:
    """Write random features and captions of random words to real stores."""
    random = np.random.default_rng(0)
    for name in ("features", "text"):
        (folder / name).mkdir()
    ids = [f"image {number}" for number in range(IMAGES)]
    with FeatureWriter(
        folder / "features", regions=REGIONS, dim=FEATURE_DIM, metadata={}, images_per_file=200
    ) as writer:
        for image_id in ids:
            writer.add(image_id, random.standard_normal((REGIONS, FEATURE_DIM), dtype=np.float32))
    captions = [
        " ".join(f"word{n}" for n in random.integers(WORDS, size=CAPTION_WORDS))
        for _ in range(5 * IMAGES)
    ]
    vectorizer = Word2Vec(dim=WORD_DIM, min_count=1, epochs=1)
    vectorizer.fit(captions, seed=0)
    write_text(folder / "text", vectorizer, range(len(captions)), captions)
    tables = Dataset(
        images=pd.DataFrame({"image_id": ids, "split": ["val"] * 10 + ["train"] * (IMAGES - 10)}),
        captions=pd.DataFrame(
            {"caption_id": range(5 * IMAGES), "image_id": np.repeat(ids, 5), "text": captions}
        ),
        phrases=pd.DataFrame({"image_id": []}),
        image_root=folder,
    )
    return tables, FeatureStore(folder / "features"), TextStore(folder / "text")


def main(steps: int, folder: Path) -> None:
    """Time some steps of a real training."""
    tables, features, text = collection(folder)
    train, validation = (
        ImageCaptionPairs(tables.split(split), features, text) for split in ("train", "val")
    )
    torch.manual_seed(0)
    model: Any = build_model(
        {
            "name": "TwoBranchModel",
            "dim": DIM,
            "image_encoder": "SMILEEncoder",
            "text_encoder": "SRUEncoder",
        },
        feature_dim=FEATURE_DIM,
        text_dim=WORD_DIM,
        text_format="tokens",
        vocabulary_size=len(text.vocabulary),
    ).to("cuda" if torch.cuda.is_available() else "cpu")
    loss = HardestTripletLoss()
    sampler = CaptionBatches(batch_size=BATCH).sampler(train.image_of_caption, seed=0)
    clock = Clock()
    for owner, name in ((model, "forward"), (loss, "forward"), (torch.Tensor, "backward")):
        setattr(owner, name, clock.timed(getattr(owner, name)))
    torch.optim.Adam.step = clock.timed(torch.optim.Adam.step, ends_step=True)  # type: ignore[method-assign]
    fit(
        model,
        TrainingPhase(CaptionBatches(), loss, epochs=1, learning_rate=0.001),
        PreparedBatches(train, lambda epoch: sampler(epoch)[:steps]),
        lambda model: recall_metrics(model_ranks(model, validation)),
        checkpoints=folder / "checkpoints",
        options=FitOptions(checkpoint_every_seconds=CHECKPOINT_EVERY_SECONDS),
    )
    # Leave out the first step: it allocates memory and waits for the first batch.
    (start, before), (end, after) = clock.steps[0], clock.steps[-1]
    counted = len(clock.steps) - 1
    saving = clock.now()
    save_checkpoint(folder / "again.safetensors", model, torch.optim.Adam(model.parameters()), {})
    # A new Adam has no moments yet; its two moments are as large as the weights.
    saving = 3 * (clock.now() - saving)
    inside = (after - before) / counted
    outside = (end - start) / counted - inside
    share = outside / (inside + outside) + saving / CHECKPOINT_EVERY_SECONDS
    report = Report("speed.training")
    report.add("forward, backward, optimizer", inside, "s / step")
    report.add("overhead", outside, "s / step")
    report.add("checkpoint", saving, "s", reference=f"one in {CHECKPOINT_EVERY_SECONDS:.0f} s")
    report.add("captions", BATCH / (inside + outside), "1 / s")
    report.add("overhead, share of a step", 100 * share, "%", at_most=MAX_OVERHEAD)
    report.write()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    with tempfile.TemporaryDirectory() as directory:
        main(parser.parse_args().steps, Path(directory))
