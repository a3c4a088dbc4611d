"""The compiled training: several GPUs, several machines, checkpoints."""

from functools import cache
from typing import Any

import pytest
import yaml

from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.kubeflow.resources import Resources
from runtime import parameters
from runtime.kubeflow.node import SETTINGS, NodeSettings
from tests.pipelines.compiled import REVISION, VALUES


def load(**changes: Any) -> Resources:
    """Return the resources with other values of train_embedding."""
    values = yaml.safe_load(resources.FILE.read_text())
    values = parameters.merge(values, {"steps": {"train_embedding": changes}})
    return Resources.model_validate(_with_defaults(values))


def _with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    steps = {name: {**values["default"], **step} for name, step in values["steps"].items()}
    return {**values, "steps": steps}


def compiled(cluster: Resources, revision: str = REVISION) -> dict[str, Any]:
    pipeline: dict[str, Any] = next(
        yaml.safe_load_all(kubeflow.compile_pipeline(VALUES, cluster, revision))
    )
    return pipeline


@cache
def container(executor: str, gpus: int = 1) -> dict[str, Any]:
    pipeline = compiled(load(gpu={"type": "nvidia.com/gpu", "count": gpus}))
    found: dict[str, Any] = pipeline["deploymentSpec"]["executors"][executor]["container"]
    return found


def test_training_on_several_gpus_runs_one_process_for_each() -> None:
    training = container("exec-train-embedding", gpus=8)
    torchrun = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8"]
    assert training["command"] == [*torchrun, "-m", "components", "train_embedding"]
    assert training["resources"]["accelerator"]["resourceCount"] == "8"
    assert container("exec-evaluate", gpus=8)["command"] == [
        "python",
        "-m",
        "components",
        "evaluate",
    ]


def test_several_gpus_of_a_step_that_uses_one_are_refused() -> None:
    values = yaml.safe_load(resources.FILE.read_text())
    values["steps"]["evaluate"]["gpu"]["count"] = 2
    with pytest.raises(
        ValueError, match=r"evaluate: gpu.count is 2, but the step uses one GPU; set it to 1"
    ):
        Resources.model_validate(_with_defaults(values))


def test_stages_know_the_folder_of_their_checkpoints() -> None:
    environment = {
        entry["name"]: entry["value"] for entry in container("exec-train-embedding")["env"]
    }
    assert environment["BIFOCAL_CHECKPOINTS"] == load().checkpoints


def test_job_of_several_machines_is_the_same_to_the_cache_in_another_commit_and_on_other_nodes() -> (
    None
):
    memory = load(nodes=2)
    placed = load(
        nodes=2,
        node_selector={"zone": "b"},
        memory="64Gi",
        shared_memory="16Gi",
        labels={"team": "search"},
    )
    first, second = compiled(memory), compiled(placed, "f" * 40)
    keys, settings = [], []
    for pipeline in (first, second):
        task = pipeline["components"]["comp-exit-handler-1"]["dag"]["tasks"]["train-distributed"]
        spec = pipeline["deploymentSpec"]["executors"]["exec-train-distributed"]["container"]
        keys.append([task["inputs"], spec["image"], spec["command"], spec["args"]])
        variables = {entry["name"]: entry["value"] for entry in spec["env"]}
        settings.append(NodeSettings.model_validate_json(variables[SETTINGS]))
    assert keys[0] == keys[1]
    assert settings[1].resources == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}
    assert (settings[1].node_selector, settings[1].shared_memory) == ({"zone": "b"}, "16Gi")
    assert {"BIFOCAL_GIT_COMMIT", "KFP_RUN_ID", "MLFLOW_TRACKING_URI"} <= set(
        settings[1].environment
    )
