"""The flow train on a cluster: to its end, from the cache, with another parameter, and with a
failing step."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cluster import SMALL, Cluster

MODEL = f"train-{uuid4().hex[:8]}"
RUN = (*SMALL, "--set", f"register_model.model={MODEL}")
UNCACHED = {"fingerprint", "register-model", "release", "promote", "notify"}

pytestmark = pytest.mark.timeout(0)


@pytest.fixture(scope="module")
def first(cluster: Cluster) -> str:
    """Id of a run that has ended."""
    run = cluster.submit(*RUN)
    assert cluster.wait(run)["state"] == "SUCCEEDED"
    return run


def test_preflight_finds_no_problem(cluster: Cluster) -> None:
    assert "no problem was found" in cluster.pipelines("preflight", *cluster.options, *SMALL)


def test_a_run_registers_a_model_with_its_lineage(
    cluster: Cluster, registry: Any, first: str
) -> None:
    parent = cluster.parent(registry, first)
    assert parent.info.status == "FINISHED"
    stages = cluster.children(registry, parent)
    assert {run.info.status for run in stages} == {"FINISHED"}
    assert all(run.data.metrics["duration_seconds"] > 0 for run in stages)
    version = registry.get_model_version_by_alias(MODEL, "candidate")
    assert {"git_commit", "hash.dataset", "hash.onnx", "release"} <= version.tags.keys()


def test_a_second_run_takes_every_stage_from_the_cache(
    cluster: Cluster, registry: Any, first: str
) -> None:
    versions = len(registry.search_model_versions(f"name='{MODEL}'"))
    run = cluster.submit(*RUN)
    assert cluster.wait(run)["state"] == "SUCCEEDED"
    assert cluster.ran(run) == UNCACHED
    assert len(registry.search_model_versions(f"name='{MODEL}'")) == versions
    assert cluster.parent(registry, run).info.status == "FINISHED"


def test_a_changed_parameter_repeats_exactly_its_stages(cluster: Cluster, first: str) -> None:
    run = cluster.submit(*RUN, "--set", "build_index.queries=500")
    assert cluster.wait(run)["state"] == "SUCCEEDED"
    assert cluster.ran(run) == UNCACHED | {"build-index"}


def test_a_step_without_memory_is_retried_and_reported(
    cluster: Cluster, registry: Any, first: str, tmp_path: Path
) -> None:
    failing = tmp_path / "failing.yaml"
    failing.write_text(
        yaml.safe_dump({"steps": {"evaluate": {"memory": "64Mi", "retries": 1, "retry_delay": 1}}})
    )
    run = cluster.submit(*RUN, "--set", "evaluate.split=val", "--resources", str(failing))
    assert cluster.wait(run)["state"] == "FAILED"
    assert cluster.attempts(run, "evaluate") == ["Failed", "Failed"]
    assert "evaluate" in cluster.notice(run)
    assert cluster.parent(registry, run).info.status == "FAILED"
