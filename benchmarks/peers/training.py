"""What does an epoch of small heads on stored features cost, beside the trainer of
sentence-transformers?

    make peers ONLY=training

CPU time of one epoch with InfoNCE in both directions, Adam and batches of 256 captions of distinct
images: 6,000 images of 1,280 values with five captions of 384 values each, two linear maps to 256
dimensions, on one core. The vectors are random maps of common latent values. Ours reads them from
stores on disk; the trainer has them in memory, as a module of its own, with the sampler that its
documentation names for the loss. Both write a checkpoint. The floor is a loop of torch in memory.
Recall at 1 of 1,000 other images is compared first.
"""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset as Columns
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.modules import InputModule, Normalize, Router
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.modules import Dense
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from bifocal.datasets import Dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.losses import InfoNCELoss
from bifocal.models import build_model
from bifocal.models.batch import ImageCaptionPairs
from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.text import TextStore
from bifocal.text.store import BATCH as ROWS
from bifocal.text.store import write_store
from bifocal.training import FitOptions, TrainingPhase, fit
from bifocal.training.batches import DistinctImageBatches
from bifocal.training.batches.base import PreparedBatches

IMAGES, HELD_OUT, PER_IMAGE, LATENT = 6000, 1000, 5, 48
IMAGE_DIM, TEXT_DIM, DIM, BATCH, RATE, TEMPERATURE = 1280, 384, 256, 256, 0.001, 0.07
NOISE, TOLERANCE = 1.6, 0.03
Heads = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]


def vectors() -> tuple[Tensor, Tensor]:
    """Return the vectors of images (N, 1280) and captions (5 N, 384): five captions follow each
    other."""
    random = np.random.default_rng(0)
    latent = random.standard_normal((IMAGES + HELD_OUT, LATENT))
    seen = np.repeat(latent, PER_IMAGE, axis=0) + NOISE * random.standard_normal(
        (len(latent) * PER_IMAGE, LATENT)
    )
    images = np.tanh(latent @ random.standard_normal((LATENT, IMAGE_DIM)) / LATENT**0.5)
    captions = np.tanh(seen @ random.standard_normal((LATENT, TEXT_DIM)) / LATENT**0.5)
    return torch.from_numpy(images).float(), torch.from_numpy(captions).float()


class Stored(InputModule):
    """Rows of vectors by their number, the input of a route."""

    def __init__(self, rows: Tensor) -> None:
        nn.Module.__init__(self)
        self.rows = rows

    def preprocess(self, inputs: Any, prompt: str | None = None, **others: Any) -> dict[str, Any]:
        return {"sentence_embedding": self.rows[[int(name) for name in inputs]]}

    def forward(self, features: dict[str, Any], **others: Any) -> dict[str, Any]:
        return features

    def save(self, *arguments: Any, **named: Any) -> None:
        """Write nothing: a checkpoint has the maps."""


class Ours:
    """Training of the project on stores."""

    def __init__(self, images: Tensor, captions: Tensor, folder: Path) -> None:
        for name in ("features", "text"):
            (folder / name).mkdir()
        ids = [str(number) for number in range(IMAGES)]
        with FeatureWriter(folder / "features", regions=1, dim=IMAGE_DIM, metadata={}) as writer:
            for number, name in enumerate(ids):
                writer.add(name, images[number : number + 1].numpy())
        texts = list(captions[: IMAGES * PER_IMAGE].numpy())
        batches = (
            EncodedCaptions(texts[start : start + ROWS]) for start in range(0, len(texts), ROWS)
        )
        write_store(folder / "text", TextFormat("vectors", TEXT_DIM), range(len(texts)), batches)
        tables = Dataset(
            images=pd.DataFrame({"image_id": ids, "split": "train"}),
            captions=pd.DataFrame(
                {"caption_id": range(len(texts)), "image_id": np.repeat(ids, PER_IMAGE), "text": ""}
            ),
            phrases=pd.DataFrame({"image_id": []}),
            image_root=folder,
        )
        self.pairs = ImageCaptionPairs(
            tables, FeatureStore(folder / "features"), TextStore(folder / "text")
        )
        self.folder = folder

    def __call__(self) -> Heads:
        torch.manual_seed(0)
        sizes: dict[str, Any] = {
            "feature_dim": IMAGE_DIM,
            "text_dim": TEXT_DIM,
            "text_format": "vectors",
        }
        linear = {
            "image_encoder": {"name": "LinearEncoder"},
            "text_encoder": {"name": "LinearEncoder"},
        }
        model: Any = build_model({"name": "TwoBranchModel", "dim": DIM, **linear}, **sizes)
        batches = DistinctImageBatches(BATCH)
        fit(
            model,
            TrainingPhase(batches, InfoNCELoss(TEMPERATURE), epochs=1, learning_rate=RATE),
            PreparedBatches(self.pairs, batches.sampler(self.pairs.image_of_caption, seed=0)),
            lambda model: {"recall_sum": 0.0},  # neither side validates
            checkpoints=Path(tempfile.mkdtemp(dir=self.folder)),
            options=FitOptions(max_grad_norm=1.0),
        )
        one = partial(torch.ones, dtype=torch.int64)
        return (
            lambda rows: model.image_encoder(
                rows.unsqueeze(1), torch.ones(len(rows), 1, dtype=torch.bool)
            ),
            lambda rows: model.text_encoder(rows, one(len(rows))),
        )


def sentence_transformers(images: Tensor, captions: Tensor, folder: Path) -> Heads:
    """Train with the trainer."""
    torch.manual_seed(0)
    image, caption = (
        Dense(size, DIM, activation_function=nn.Identity()) for size in (IMAGE_DIM, TEXT_DIM)
    )
    router = Router.for_query_document([Stored(images), image], [Stored(captions), caption])
    model = SentenceTransformer(modules=[router, Normalize()], device="cpu")
    numbers = range(IMAGES * PER_IMAGE)
    columns = {
        "image": [str(row // PER_IMAGE) for row in numbers],
        "caption": [str(row) for row in numbers],
    }
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder / "peer"),
        num_train_epochs=1,
        per_device_train_batch_size=BATCH,
        learning_rate=RATE,
        lr_scheduler_type="constant",
        batch_sampler="no_duplicates",
        dataloader_drop_last=True,
        use_cpu=True,
        router_mapping={"image": "query", "caption": "document"},
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    loss = MultipleNegativesRankingLoss(
        model,
        scale=1 / TEMPERATURE,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=Columns.from_dict(columns), loss=loss
    ).train()
    return lambda rows: normalize(image.linear(rows), dim=1), lambda rows: normalize(
        caption.linear(rows), dim=1
    )


def loop(images: Tensor, captions: Tensor) -> Heads:
    """Train with a loop of torch over pairs in random order, with two captions of an image in some
    batches."""
    torch.manual_seed(0)
    image, caption = nn.Linear(IMAGE_DIM, DIM), nn.Linear(TEXT_DIM, DIM)
    optimizer = torch.optim.Adam([*image.parameters(), *caption.parameters()], lr=RATE)
    heads = lambda rows: normalize(image(rows), dim=1), lambda rows: normalize(caption(rows), dim=1)
    labels = torch.arange(BATCH)
    for rows in torch.randperm(IMAGES * PER_IMAGE).split(BATCH):
        if len(rows) == BATCH:
            logits = heads[0](images[rows // PER_IMAGE]) @ heads[1](captions[rows]).T / TEMPERATURE
            optimizer.zero_grad()
            (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)).backward()
            optimizer.step()
    return heads


@torch.no_grad()
def recall(heads: Heads, images: Tensor, captions: Tensor) -> float:
    """Return R@1 of the images held out for one caption each."""
    image, caption = heads
    scores = caption(captions[IMAGES * PER_IMAGE :: PER_IMAGE]) @ image(images[IMAGES:]).T
    return float((scores.argmax(dim=1) == torch.arange(HELD_OUT)).float().mean())


def main() -> None:
    """Compare the trainings."""
    torch.set_num_threads(1)
    images, captions = vectors()
    report = Report("peers.training")
    with tempfile.TemporaryDirectory() as name:
        ours = Ours(images, captions, Path(name))
        peers = {
            "sentence-transformers": partial(sentence_transformers, images, captions, Path(name)),
            "torch loop (floor)": partial(loop, images, captions),
        }
        reached = recall(ours(), images, captions)
        for peer, theirs in peers.items():
            found = recall(theirs(), images, captions)
            print(f"R@1 of images held out: {reached:.3f}; {peer}: {found:.3f}")
            assert abs(found - reached) <= TOLERANCE, peer
            compare(report, f"an epoch of heads, {IMAGES:,} images", peer, ours, theirs)
    write(report)


if __name__ == "__main__":
    main()
