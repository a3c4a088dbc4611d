"""A shared store on a cluster: every step mounts the volume."""

from typing import Any

import pytest
import yaml

from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.kubeflow.resources import Volume
from tests.pipelines.compiled import REVISION, VALUES


def executors(store: Volume | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Compiled containers and pods by executor."""
    cluster = resources.load().model_copy(update={"store": store})
    text = kubeflow.compile_pipeline(VALUES, cluster, REVISION)
    pipeline, platform = yaml.load_all(text, Loader=yaml.CSafeLoader)
    return pipeline["deploymentSpec"]["executors"], platform["platforms"]["kubernetes"][
        "deploymentSpec"
    ]["executors"]


@pytest.mark.parametrize("store", [None, Volume(claim="bifocal-store", mount_path="/store")])
def test_every_step_mounts_the_store(store: Volume | None) -> None:
    containers, pods = executors(store)
    for name, executor in containers.items():
        environment = {entry["name"]: entry["value"] for entry in executor["container"]["env"]}
        mounts = [mount["mountPath"] for mount in pods[name].get("pvcMount", [])]
        assert environment.get("BIFOCAL_STORE") == (store and store.mount_path)
        assert mounts == ([store.mount_path] if store else [])
