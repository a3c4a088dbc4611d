"""This run against the registered champion, on the queries that both answered."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from bifocal.metrics.bootstrap import bootstrap_means, percentile_interval
from bifocal.report.page import Difference
from components.evaluate.evidence import RANKS
from runtime.mlflow import get_version

NAMES = {"caption_retrieval": "captions of an image", "image_retrieval": "image of a caption", "pointing": "pointing"}


def champion_ranks(name: str) -> tuple[str, pd.DataFrame | None]:
    """``ranks.parquet`` of the version ``model@alias``, and what to call it; None, and why, if there is none."""
    model, _, alias = name.partition("@")
    version = get_version(model, alias)
    if version is None:
        return f"No version of {model} has the alias {alias} yet, so there is nothing to compare with.", None
    with TemporaryDirectory() as folder:
        _, evidence = version.download(Path(folder))
        if not (evidence / RANKS).is_file():
            return f"Version {version.number} of {model} was registered without {RANKS}.", None
        return f"{model} version {version.number}", pd.read_parquet(evidence / RANKS)


def compare(here: pd.DataFrame, there: pd.DataFrame, ks: list[int], resamples: int, seed: int) -> list[Difference]:
    """Each figure of both, and the paired difference with its 95 % interval; no row where they share no query.

    Args:
        here, there: ``ranks.parquet`` of this run and of the champion.
    """
    keys = ["direction", "query", "image_id", "content"]
    both = here.merge(there, on=keys, suffixes=("_here", "_there"))
    found = []
    for direction, rows in both.groupby("direction", sort=True):
        for k in [1] if direction == "pointing" else ks:
            name = f"{NAMES.get(str(direction), direction)}, " + ("accuracy" if direction == "pointing" else f"R@{k}")
            found.append(_difference(name, rows, k, resamples, seed))
    return found


def _difference(name: str, rows: pd.DataFrame, k: int, resamples: int, seed: int) -> Difference:
    hits = [torch.tensor(100.0 * (rows[f"rank_{side}"] < k).to_numpy(dtype=np.float64)) for side in ("here", "there")]
    image = torch.from_numpy(pd.factorize(rows["image_id"])[0].astype(np.int64))
    drawn = bootstrap_means(_sum(hits[0] - hits[1], image), _sum(torch.ones_like(hits[0]), image), resamples, seed)
    low, high = percentile_interval(drawn[:, 0], 0.95)
    mean_here, mean_there = (float(values.mean()) for values in hits)
    return Difference(
        name,
        f"{mean_here:.1f}",
        f"{mean_there:.1f}",
        f"{mean_here - mean_there:+.1f}",
        f"{low:+.1f} to {high:+.1f}",
        1 if low > 0 else -1 if high < 0 else 0,
    )


def _sum(values: Tensor, image: Tensor) -> Tensor:
    totals = torch.zeros(int(image.max()) + 1, 1, dtype=torch.float64)
    return totals.index_add_(0, image, values.double().unsqueeze(1))
