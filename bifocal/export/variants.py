"""Size, latency and recall of exported float32 and int8 graphs, side by side."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from bifocal.datasets import Dataset
from bifocal.durable import write_json
from bifocal.export.graphs.quantization import quantize_graph
from bifocal.export.outputs import encode_images, in_batches
from bifocal.features import FeatureStore
from bifocal.metrics import retrieval_ranks
from bifocal.onnx.encoders import Array, Embedder
from bifocal.progress import track

QUANTIZATION = "quantization.json"
IMAGES = 1000
"""Images that the recall is measured on, at most."""
BATCH, REPETITIONS, WARM_UP = 32, 20, 3


@dataclass(frozen=True)
class Variant:
    """Size in MB of exported graphs, median time in ms per input (file or features) on one core,
    and R@1 in percent."""

    megabytes: float
    sentence_ms: float
    image_ms: float
    caption_recall: float
    image_recall: float

    @property
    def recall(self) -> float:
        """Mean of both R@1, percent."""
        return (self.caption_recall + self.image_recall) / 2


def quantize_and_measure(
    folder: Path, split: Dataset, features: FeatureStore, max_loss: float
) -> dict[str, float]:
    """Quantize all graphs, write ``quantization.json``; ``ValueError`` above a loss of ``max_loss``
    points of R@1."""
    variants = {"float32": measure(folder, split, features)}
    for file in track(sorted(folder.glob("*.onnx")), "quantize"):
        quantize_graph(file)
    variants["int8"] = measure(folder, split, features)
    content = {name: asdict(variant) for name, variant in variants.items()}
    # Equal inputs give equal files, so the times are metrics only.
    kept = {
        name: {key: of[key] for key in of if not key.endswith("_ms")}
        for name, of in content.items()
    }
    write_json(folder / QUANTIZATION, kept)
    loss = variants["float32"].recall - variants["int8"].recall
    if loss > max_loss:
        raise ValueError(
            f"graphs of int8 lose {loss:.2f} points of R@1 on the split, and the largest "
            f"allowed loss is {max_loss:.2f}: set precision to float32, or raise "
            "max_recall_loss"
        )
    return {
        f"{name}.{key}": value for name, values in content.items() for key, value in values.items()
    }


def measure(folder: Path, split: Dataset, features: FeatureStore) -> Variant:
    """Measure the graphs in ``folder`` on the first images of a split, by the modules that serve
    them."""
    dataset = split.first(IMAGES)
    embedder = Embedder(folder, threads=1)
    if len(embedder.texts.get_outputs()) > 1:
        raise ValueError("int8 needs a model with one vector per image: set precision to float32")
    ids, sentences = dataset.images["image_id"].tolist(), dataset.captions["text"].tolist()
    answers = torch.tensor(dataset.image_rows(dataset.captions["image_id"]))

    def embed_images(image_ids: Sequence[str]) -> Array:
        return encode_images(embedder, dataset, image_ids, features)

    embeddings = (
        in_batches(embed_images, ids, BATCH),
        in_batches(embedder.embed_sentences, sentences, BATCH),
    )
    both = retrieval_ranks(*embeddings, answers)
    caption_recall, image_recall = (100 * ranks.recall(1) for ranks in both)
    return Variant(
        megabytes=sum(file.stat().st_size for file in folder.glob("*.onnx")) / 1e6,
        sentence_ms=_milliseconds(lambda: embedder.embed_sentences(sentences[:1])),
        image_ms=_milliseconds(lambda: embed_images(ids[:1])),
        caption_recall=caption_recall,
        image_recall=image_recall,
    )


def _milliseconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(WARM_UP + REPETITIONS):
        start = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - start))
    return float(np.median(times[WARM_UP:]))
