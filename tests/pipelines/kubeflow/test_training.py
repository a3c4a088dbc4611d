"""The compiled training: several GPUs, several machines, checkpoints."""

from functools import cache
from typing import Any

import pytest
import yaml

from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.kubeflow.resources import Resources
from runtime import parameters
from tests.pipelines.compiled import REVISION, VALUES


def load(**changes: Any) -> Resources:
    """Return the resources with other values of train_embedding."""
    values = yaml.safe_load(resources.FILE.read_text())
    values = parameters.merge(values, {"steps": {"train_embedding": changes}})
    return Resources.model_validate(_with_defaults(values))


def _with_defaults(values: dict[str, Any]) -> dict[str, Any]:
    steps = {name: {**values["default"], **step} for name, step in values["steps"].items()}
    return {**values, "steps": steps}


@cache
def container(executor: str, gpus: int = 1, nodes: int = 1) -> dict[str, Any]:
    cluster = load(gpu={"type": "nvidia.com/gpu", "count": gpus}, nodes=nodes)
    pipeline = next(yaml.safe_load_all(kubeflow.compile_pipeline(VALUES, cluster, REVISION)))
    found: dict[str, Any] = pipeline["deploymentSpec"]["executors"][executor]["container"]
    return found


def test_training_on_several_gpus_runs_one_process_for_each() -> None:
    training = container("exec-train-embedding", gpus=8)
    torchrun = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=8"]
    assert training["command"] == [*torchrun, "-m", "components", "train_embedding"]
    assert training["resources"]["accelerator"]["resourceCount"] == "8"
    assert container("exec-evaluate", gpus=8)["command"] == ["python", "-m", "components", "evaluate"]


def test_several_gpus_of_a_step_that_uses_one_are_refused() -> None:
    values = yaml.safe_load(resources.FILE.read_text())
    values["steps"]["evaluate"]["gpu"]["count"] = 2
    with pytest.raises(ValueError, match=r"evaluate: gpu.count is 2, but the step uses one GPU; set it to 1"):
        Resources.model_validate(_with_defaults(values))


def test_stages_know_the_folder_of_their_checkpoints() -> None:
    environment = {entry["name"]: entry["value"] for entry in container("exec-train-embedding")["env"]}
    assert environment["BIFOCAL_CHECKPOINTS"] == resources.load().checkpoints
