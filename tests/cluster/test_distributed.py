"""A training on two machines by Kubeflow's Trainer, one pod of which is killed; skipped without the
Trainer."""

import subprocess
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cluster import SMALL, Cluster

RUNTIME = "torch-distributed"
SECOND = "jobset.sigs.k8s.io/replicatedjob-name=node,batch.kubernetes.io/job-completion-index=1"
# The cache of Kubeflow has the training of another session with the same seed.
MODEL, SEED = f"distributed-{uuid4().hex[:8]}", uuid4().int % 10_000

pytestmark = pytest.mark.timeout(0)


@pytest.fixture(scope="module")
def two_machines(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Resources of a training on two machines."""
    try:
        cluster.kubectl("get", "clustertrainingruntime", RUNTIME)
        cluster.kubectl(
            "get",
            "deployment",
            "--namespace",
            "kubeflow-system",
            "kubeflow-trainer-controller-manager",
        )
    except subprocess.CalledProcessError:
        pytest.skip("the cluster has no Kubeflow Trainer")
    file = tmp_path_factory.mktemp("distributed") / "resources.yaml"
    file.write_text(yaml.safe_dump({"steps": {"train_embedding": {"nodes": 2}}}))
    return file


def test_a_training_survives_a_killed_machine(
    cluster: Cluster, registry: Any, two_machines: Path
) -> None:
    settings = ("--set", f"register_model.model={MODEL}", "--set", f"seed={SEED}")
    run = cluster.submit(*SMALL, *settings, "--resources", str(two_machines))
    running = (
        "get",
        "pods",
        "--selector",
        SECOND,
        "--field-selector",
        "status.phase=Running",
        "--output",
        "name",
    )
    deadline = time.monotonic() + 2400
    while not (pods := cluster.kubectl(*running).split()):
        assert time.monotonic() < deadline, "no second machine has started"
        time.sleep(1)
    cluster.kubectl("delete", *pods, "--wait=false")
    assert cluster.wait(run)["state"] == "SUCCEEDED"
    assert len(registry.search_model_versions(f"name='{MODEL}'")) == 1
    assert not cluster.notice(run)
