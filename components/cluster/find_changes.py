"""Step find_changes: run."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd

from bifocal.datasets import read_dataset
from bifocal.evaluation.rank_tables import EVALUATED_IMAGES, TRAINING_IMAGES
from bifocal.onnx.files import read_json
from bifocal.progress import log_line
from components.cluster.policies import PromotionPolicy
from components.cluster.steps import CHANGED, FindChangesParams
from runtime.artifacts import artifact_hash
from runtime.mlflow import RegisteredVersion, get_version, version_tags


def run(params: FindChangesParams, *, dataset: Path) -> dict[str, Any]:
    """Compare the images with the last training's by content, or, without any, as a whole."""
    last = get_version(params.model, params.alias)
    if last is None:
        return _decide(
            True, 1.0, f"no version of {params.model} is registered: train the first one"
        )
    tags = version_tags(last)
    now = frozenset(read_dataset(dataset).images["sha256"].dropna().astype(str)) - {""}
    then = _images(last)
    same = tags.get("hash.dataset") == artifact_hash(dataset)
    change = float(not same) if not now or not then else len(now ^ then) / len(then)
    compared = (
        f"{len(now - then):,} images are new and {len(then - now):,} are gone since the "
        f"training of version {last.number} with {len(then):,} images: {change:.1%}"
    )
    least = params.policy.retrain_change
    if change >= least:
        return _decide(True, change, f"{compared}, at least {least:.1%}: train")
    # A run was killed before the decision, or between it and the promotion.
    undecided = ("", "accepted") if params.promote else ("",)
    if tags.get("promotion", "") in undecided:
        end = "continue it" if same else "train again, with the changed images"
        return _decide(True, change, f"the run of version {last.number} did not end: {end}")
    if tags.get("promotion") == "no" and _policy(last, tags) not in (
        None,
        _deciding(params.policy),
    ):
        reason = f"version {last.number} was refused by another policy: decide again"
        return _decide(True, change, reason)
    return _decide(False, change, f"{compared}, less than {least:.1%}: nothing to train")


def _images(version: RegisteredVersion) -> frozenset[str]:
    """Return the contents of the images that a version was trained or evaluated on."""
    with TemporaryDirectory() as folder, suppress(FileNotFoundError):  # a user deleted the run
        files = [
            version.download_evaluation(name, Path(folder))
            for name in (TRAINING_IMAGES, EVALUATED_IMAGES)
        ]
        return frozenset(pd.concat(map(pd.read_parquet, files))["content"]) - {""}
    return frozenset()


def _policy(version: RegisteredVersion, tags: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the policy of the last decision about a version; None if its file was deleted."""
    name = f"promotion/against_{tags.get('promotion.champion')}.json"
    with TemporaryDirectory() as folder, suppress(FileNotFoundError):
        record = read_json(version.download_file(name, Path(folder)))
        return _deciding(PromotionPolicy.model_validate(record["policy"]))
    return None


def _deciding(policy: PromotionPolicy) -> dict[str, Any]:
    return policy.model_dump(exclude={"model", "lock_timeout", "retrain_change"})


def _decide(changed: bool, change: float, reason: str) -> dict[str, Any]:
    log_line(reason)
    return {CHANGED: json.dumps(changed), "change": change}
