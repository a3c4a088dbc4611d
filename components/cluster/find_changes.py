"""Step find_changes: run."""

import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from bifocal.datasets import read_dataset
from bifocal.evaluation.rank_tables import TRAINING_IMAGES, training_hashes
from bifocal.progress import log_line
from components.cluster.steps import CHANGED, FindChangesParams
from runtime.artifacts import artifact_hash
from runtime.mlflow import RegisteredVersion, get_version, version_tags


def run(params: FindChangesParams, *, dataset: Path) -> dict[str, Any]:
    """Compare the images outside the test split with the last training's by content, or, without
    any, as a whole."""
    last = get_version(params.model, params.alias)
    if last is None:
        return _decide(
            True, 1.0, f"no version of {params.model} is registered: train the first one"
        )
    tags = version_tags(last)
    now, then = training_hashes(read_dataset(dataset)), _training_images(last)
    same = tags.get("hash.dataset") == artifact_hash(dataset)
    change = float(not same) if not now or not then else len(now ^ then) / len(then)
    compared = (
        f"{len(now - then):,} images are new and {len(then - now):,} are gone since the "
        f"training of version {last.number} with {len(then):,} images: {change:.1%}"
    )
    if change >= params.least:
        return _decide(True, change, f"{compared}, at least {params.least:.1%}: train")
    # A run was killed before the decision, or between it and the promotion.
    undecided = ("", "accepted") if params.promote else ("",)
    if tags.get("promotion", "") in undecided:
        end = "continue it" if same else "train again, with the changed images"
        return _decide(True, change, f"the run of version {last.number} did not end: {end}")
    return _decide(False, change, f"{compared}, less than {params.least:.1%}: nothing to train")


def _training_images(version: RegisteredVersion) -> frozenset[str]:
    with TemporaryDirectory() as folder, suppress(FileNotFoundError):  # a user deleted the run
        return frozenset(
            pd.read_parquet(version.download_evaluation(TRAINING_IMAGES, Path(folder)))["content"]
        )
    return frozenset()


def _decide(changed: bool, change: float, reason: str) -> dict[str, Any]:
    log_line(reason)
    return {CHANGED: json.dumps(changed), "change": change}
