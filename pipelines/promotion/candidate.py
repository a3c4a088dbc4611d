"""Metrics of a registered version: downloaded with its files, and its latency measured here."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from bifocal.evaluation.rank_tables import RANKS, TRAINING_IMAGES
from runtime.mlflow import Version

REPETITIONS = 20
BACKBONE = "backbone"
"""Value of the column ``branch`` in ``parity.csv``."""


@dataclass(frozen=True)
class VersionMetrics:
    """What a promotion compares of one version.

    Attributes:
        ranks: rank of every query, as in ``ranks.parquet``.
        training_images: SHA-256 of the images outside the evaluated split.
        parity: largest absolute difference between an ONNX embedding and torch's.
        backbone_parity: largest relative difference between an ONNX feature and torch's; 0 without a backbone graph.
        latency_ms: median time to embed one sentence.
        size_mb: size of all ONNX files.
    """

    ranks: pd.DataFrame
    training_images: frozenset[str]
    parity: float
    latency_ms: float
    size_mb: float
    backbone_parity: float = 0.0


def collect(version: Version) -> VersionMetrics:
    """Download the files of a version and measure its latency.

    Raises:
        ValueError: a file is missing: another version of the project registered the model.
    """
    with TemporaryDirectory() as folder:
        model, evaluation = version.download(Path(folder))
        graphs = list(model.rglob("*.onnx"))
        parity = next(iter(model.rglob("parity.csv")), None)
        if not graphs or parity is None or not (evaluation / RANKS).is_file():
            raise ValueError(
                f"version {version.number} has no ONNX files, parity.csv or {RANKS}: register the model again"
            )
        table = pd.read_csv(parity)
        is_backbone = table["branch"] == BACKBONE
        return VersionMetrics(
            ranks=pd.read_parquet(evaluation / RANKS),
            training_images=frozenset(pd.read_parquet(evaluation / TRAINING_IMAGES)["content"]),
            # NaN must stay NaN: skipna would hide a broken graph.
            parity=float(table.loc[~is_backbone, "difference"].max(skipna=False)),
            backbone_parity=float(table.loc[is_backbone, "difference"].max(skipna=False)) if is_backbone.any() else 0.0,
            latency_ms=latency(parity.parent),
            size_mb=sum(path.stat().st_size for path in graphs) / 1e6,
        )


def latency(directory: Path) -> float:
    """Return the median time to embed one sentence, in milliseconds, after a warm-up."""
    from bifocal.serving.embedder import Embedder  # imports onnxruntime, which takes a second

    embedder = Embedder(directory)
    seconds = []
    for _ in range(1 + REPETITIONS):
        start = time.perf_counter()
        embedder.embed_sentences(["a dog runs on the grass beside a child in a red coat"])
        seconds.append(time.perf_counter() - start)
    return 1e3 * float(np.median(seconds[1:]))
