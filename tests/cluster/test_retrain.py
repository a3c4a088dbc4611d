"""The flow retrain on a cluster: a first model, nothing new, a refused candidate, and a step that
fails."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cluster import POLICY, SMALL, Cluster

MODEL = f"retrain-{uuid4().hex[:8]}"
ENDING = {"embed-collection", "build-index", "release", "promote-2"}

pytestmark = pytest.mark.timeout(0)


def retrain(cluster: Cluster, *arguments: str, train: int, state: str = "SUCCEEDED") -> str:
    """Run the flow on a corpus with ``train`` images for training until it ends; return the id of
    the run."""
    settings = (f"register_model.model={MODEL}", f"prepare_dataset.corpus.train={train}")
    options = [option for setting in settings for option in ("--set", setting)]
    run = cluster.submit("--flow", "retrain", *SMALL, *options, *arguments)
    assert cluster.wait(run)["state"] == state
    return run


def champion(registry: Any) -> int:
    return int(registry.get_model_version_by_alias(MODEL, "champion").version)


@pytest.fixture(scope="module")
def first(cluster: Cluster) -> str:
    """Id of the run that trains the first champion."""
    return retrain(
        cluster, train=44
    )  # not the corpus of test_train.py, whose stages are in Kubeflow's cache


def test_the_first_model_is_promoted_with_its_release(
    cluster: Cluster, registry: Any, first: str
) -> None:
    # The other stages may be in the cache of a cluster that has run this test before.
    assert cluster.ran(first) >= {"find-changes", "promote", "release", "promote-2"}
    assert champion(registry) == 1
    assert "release" in registry.get_model_version(MODEL, "1").tags
    assert cluster.parent(registry, first).info.status == "FINISHED"
    assert not cluster.notice(first)


def test_without_new_data_nothing_is_trained(cluster: Cluster, registry: Any, first: str) -> None:
    run = retrain(cluster, train=44)
    assert cluster.ran(run) == {"fingerprint", "find-changes", "notify"}
    assert cluster.parent(registry, run).info.status == "FINISHED"
    assert not cluster.notice(run)


def test_a_refused_candidate_embeds_nothing(cluster: Cluster, registry: Any, first: str) -> None:
    file = cluster.checkout / POLICY
    policy = file.read_text()
    file.write_text(yaml.safe_dump(yaml.safe_load(policy) | {"floors": {"recall_sum": 599.0}}))
    try:
        run = retrain(cluster, train=60)
    finally:
        file.write_text(policy)
    assert "train-embedding" in cluster.ran(run)
    assert not cluster.ran(run) & ENDING
    assert champion(registry) == 1
    assert cluster.parent(registry, run).info.status == "FINISHED"
    assert not cluster.notice(run)


def test_a_failing_step_is_retried_and_named(
    cluster: Cluster, registry: Any, first: str, tmp_path: Path
) -> None:
    failing = tmp_path / "failing.yaml"
    failing.write_text(
        yaml.safe_dump({"steps": {"evaluate": {"memory": "64Mi", "retries": 1, "retry_delay": 1}}})
    )
    run = retrain(cluster, "--resources", str(failing), train=80, state="FAILED")
    assert cluster.attempts(run, "evaluate") == ["Failed", "Failed"]
    assert "evaluate" in cluster.notice(run)
    assert champion(registry) == 1
    assert cluster.parent(registry, run).info.status == "FAILED"
