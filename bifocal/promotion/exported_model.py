"""An exported model with its evaluation: ranks and latency of its graphs."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from bifocal.datasets import Dataset
from bifocal.evaluation.rank_tables import EVALUATED_IMAGES, RANKS, TRAINING_IMAGES
from bifocal.evaluation.retrieval.ranked_split import full_rank_table
from bifocal.export.outputs import encode_images, in_batches
from bifocal.features import FeatureStore
from bifocal.metrics import retrieval_ranks, score_ranks
from bifocal.onnx.encoders import Array, Embedder, Encoders, PairScorer, scores_pairs

BACKBONE = "backbone"
"""Value of the column ``branch`` in ``parity.csv``."""
IMAGES_PER_BATCH, SENTENCES_PER_BATCH = 32, 256
SCORED_IMAGES, SCORED_CAPTIONS = 16, 32
"""Images and captions per call of the scoring graph."""
REPETITIONS, WARM_UP = 20, 3
SENTENCE = "a dog runs on the grass beside a child in a red coat"
"""Calls whose median time is the latency, calls before them, and the sentence."""


@dataclass(frozen=True)
class ExportedModel:
    """Files of an exported model."""

    directory: Path  # folder of the graphs
    ranks: pd.DataFrame  # ranks of its own evaluation, as in ``ranks.parquet``
    trained_on: frozenset[str]  # SHA-256 of the images outside the evaluated split
    evaluated_on: pd.DataFrame  # images of the evaluated split, as in ``evaluated_on.parquet``
    parity: float  # largest difference between an embedding or a score of the graphs and torch's
    # largest relative difference between a feature and torch's; 0 without a backbone graph
    backbone_parity: float
    size_mb: float  # size of all graphs

    @classmethod
    def read(cls, directory: Path, evaluation: Path) -> "ExportedModel":
        """Read the exported files in the folder of the graphs, and the tables of the evaluation."""
        graphs, parity = list(directory.rglob("*.onnx")), directory / "parity.csv"
        files = (
            *(evaluation / name for name in (RANKS, TRAINING_IMAGES, EVALUATED_IMAGES)),
            parity,
        )
        absent = [file.name for file in files if not file.is_file()] + ["*.onnx"] * (not graphs)
        if absent:
            raise ValueError(
                f"{', '.join(absent)} is missing: evaluate and export the model again with "
                "this version"
            )
        ranks, trained_on, evaluated_on = map(pd.read_parquet, files[:3])
        table = pd.read_csv(parity)
        is_backbone = table["branch"] == BACKBONE
        return cls(
            directory=directory,
            ranks=ranks,
            trained_on=frozenset(trained_on["content"]),
            evaluated_on=evaluated_on,
            # NaN must stay NaN: skipna would hide a broken graph.
            parity=float(table.loc[~is_backbone, "difference"].max(skipna=False)),
            backbone_parity=float(table.loc[is_backbone, "difference"].max(skipna=False))
            if is_backbone.any()
            else 0.0,
            size_mb=sum(path.stat().st_size for path in graphs) / 1e6,
        )

    @cached_property
    def encoders(self) -> Embedder | PairScorer:
        """The graphs, loaded."""
        return (
            PairScorer(self.directory) if scores_pairs(self.directory) else Embedder(self.directory)
        )

    @property
    def evaluated_contents(self) -> "pd.Series[str]":
        """SHA-256 of each evaluated image's file, or of its features if it has no file."""
        known = self.evaluated_on
        return known["content"].where(known["content"] != "", known["features"])

    @property
    def reads_images(self) -> bool:
        """Whether the graphs read an image file; others need the features of the image."""
        return "image" in self.encoders.inputs

    def rank(self, split: Dataset, features: FeatureStore | None) -> pd.DataFrame:
        """Return the rank of every image and caption of ``split``, ranked together, as in
        ``ranks.parquet``."""
        ids, texts = split.images["image_id"].tolist(), split.captions["text"].tolist()
        answers = torch.tensor(split.image_rows(split.captions["image_id"]))

        def encode(batch: Sequence[str]) -> Array:
            return encode_images(self.encoders, split, batch, features)

        if isinstance(self.encoders, PairScorer):
            scores = torch.from_numpy(score_matrix(self.encoders, ids, texts, encode))
            ranks = score_ranks(
                lambda rows, columns: scores[rows][:, columns], answers, images=len(ids)
            )
        else:
            images = in_batches(encode, ids, IMAGES_PER_BATCH)
            captions = in_batches(self.encoders.embed_sentences, texts, SENTENCES_PER_BATCH)
            ranks = retrieval_ranks(images, captions, answers)
        return full_rank_table(split, answers, ranks)


def score_matrix(
    scorer: PairScorer,
    image_ids: Sequence[str],
    sentences: Sequence[str],
    encode: Callable[[Sequence[str]], Array],
) -> NDArray[np.float32]:
    """Return the scores (N, M) of images and sentences; ``encode`` returns the cells (n, L, R, d)
    of images."""
    starts = range(0, len(sentences), SCORED_CAPTIONS)
    captions = [
        scorer.encode_captions(sentences[start : start + SCORED_CAPTIONS]) for start in starts
    ]
    scores = np.empty((len(image_ids), len(sentences)), dtype=np.float32)
    for start in range(0, len(image_ids), SCORED_IMAGES):
        cells = encode(image_ids[start : start + SCORED_IMAGES])
        for number, block in enumerate(captions):
            columns = slice(number * SCORED_CAPTIONS, number * SCORED_CAPTIONS + len(block[0]))
            scores[start : start + len(cells), columns] = scorer.score(cells, block)
    return scores


def latency_ratios(current: Encoders, reference: Encoders, image: bytes | None) -> dict[str, float]:
    """Return the median time per input, current over reference; the models take turns, so load
    concerns both."""
    calls: dict[str, Callable[[Encoders], object]] = {
        "text": lambda model: model.encode_sentences([SENTENCE])
    }
    if image is not None:
        calls["image"] = lambda model: model.encode_images([image])
    return {
        kind: _ratio(partial(call, current), partial(call, reference))
        for kind, call in calls.items()
    }


def _ratio(current: Callable[[], object], reference: Callable[[], object]) -> float:
    seconds: tuple[list[float], list[float]] = ([], [])
    for repetition in range(WARM_UP + REPETITIONS):
        order = (0, 1) if repetition % 2 else (1, 0)
        for side in order:
            start = time.perf_counter()
            (current, reference)[side]()
            seconds[side].append(time.perf_counter() - start)
    medians = [float(np.median(values[WARM_UP:])) for values in seconds]
    return medians[0] / medians[1]
