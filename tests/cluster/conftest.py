"""A cluster of Kubernetes with Kubeflow Pipelines, for the tests of this folder; skipped without
``KUBECONFIG``.

Variables, beside those of ``python -m pipelines``: ``KFP_ENDPOINT``; ``KFP_NAMESPACE`` (kubeflow);
``BIFOCAL_CLUSTER_OPTIONS``, the options of every run, such as
``--images images.json --resources cluster.yaml``; ``MLFLOW_TRACKING_URI`` and ``AWS_*``, with which
this machine reaches the servers that the pods use. ``deploy/kind/e2e.sh`` sets them, and applies
``deploy/overlays/kind`` and ``deploy/retries.yaml``, which tests need.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
from cluster import POLICY, ROOT, Cluster, from_environment
from search import Service, deployed

# For a corpus of drawn scenes, which look alike: fewer test images, low floors, a gain with little
# confidence. The better model is larger, and a busy machine makes latencies uncertain.
CHANGES = {
    "min_images": 12,
    "floors": {"recall_sum": 1.0},
    "max_drops": {"image_retrieval.R@1": 50.0},
    "max_near_duplicates": 1.0,
    "false_promotion_rate": 0.49,
    "looks": 3,
    "max_latency_ratio": 20.0,
    "allow_dirty": True,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of this folder without a cluster."""
    if "KUBECONFIG" not in os.environ or "KFP_ENDPOINT" not in os.environ:
        for item in items:
            if Path(__file__).parent == item.path.parent:
                item.add_marker(
                    pytest.mark.skip(reason="KUBECONFIG and KFP_ENDPOINT name no cluster")
                )


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """The cluster, with a clone of this checkout whose promotion policy accepts small corpora."""
    checkout = tmp_path_factory.mktemp("cluster") / "checkout"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout)], check=True)
    policy = yaml.safe_load((ROOT / POLICY).read_text()) | CHANGES
    (checkout / POLICY).write_text(yaml.safe_dump(policy))
    return from_environment(checkout)


@pytest.fixture(scope="session")
def registry() -> Any:
    """Client of the cluster's MLflow server."""
    from mlflow import MlflowClient

    return MlflowClient(os.environ["MLFLOW_TRACKING_URI"])


@pytest.fixture(scope="module")
def service(cluster: Cluster, registry: Any) -> Iterator[Service]:
    """The search service with the champion, deployed for the tests of one file."""
    with deployed(cluster, registry) as found:
        yield found
