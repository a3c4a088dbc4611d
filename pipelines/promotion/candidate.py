"""What is known of a registered version: fetched, and timed."""

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from components.evaluate.evidence import RANKS, TRAINED_ON
from runtime.mlflow import Version

REPETITIONS = 20
BACKBONE = "backbone"  # in parity.csv of export_onnx


@dataclass(frozen=True)
class Evidence:
    """What is known of one version.

    Attributes:
        ranks: ``ranks.parquet`` of the stage evaluate.
        trained_on: SHA-256 of the images that it may have seen in training.
        parity: greatest difference of an embedding from torch's.
        backbone_parity: the same of a feature, relative to the greatest; 0 if no graph makes the features.
        latency_ms: of one sentence.
        size_mb: of the ONNX files.
    """

    ranks: pd.DataFrame
    trained_on: frozenset[str]
    parity: float
    latency_ms: float
    size_mb: float
    backbone_parity: float = 0.0


def gather(version: Version) -> Evidence:
    """Fetch a version's files, and time it.

    Raises:
        ValueError: a file is missing: it was registered by another version of the project.
    """
    with TemporaryDirectory() as folder:
        model, evidence = version.download(Path(folder))
        graphs = list(model.rglob("*.onnx"))
        parity = next(iter(model.rglob("parity.csv")), None)
        if not graphs or parity is None or not (evidence / RANKS).is_file():
            raise ValueError(f"version {version.number} lacks ONNX files, parity.csv or {RANKS}: register it again")
        compared = pd.read_csv(parity)
        of_backbone = compared["branch"] == BACKBONE
        return Evidence(
            ranks=pd.read_parquet(evidence / RANKS),
            trained_on=frozenset(pd.read_parquet(evidence / TRAINED_ON)["content"]),
            parity=float(compared.loc[~of_backbone, "difference"].max(skipna=False)),
            backbone_parity=float(compared.loc[of_backbone, "difference"].max(skipna=False))
            if of_backbone.any()
            else 0.0,
            latency_ms=latency(parity.parent),
            size_mb=sum(path.stat().st_size for path in graphs) / 1e6,
        )


def latency(directory: Path) -> float:
    """Median time of one sentence, milliseconds, after the first."""
    from bifocal.serving.embedder import Embedder  # imported here: onnxruntime takes a second

    embedder = Embedder(directory)
    seconds = []
    for _ in range(1 + REPETITIONS):
        start = time.perf_counter()
        embedder.embed_sentences(["a dog runs on the grass beside a child in a red coat"])
        seconds.append(time.perf_counter() - start)
    return 1e3 * float(np.median(seconds[1:]))
