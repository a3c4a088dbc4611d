"""Pods of the compiled steps, checked against the schemas of KFP and Kubernetes."""

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from google.protobuf import json_format
from kfp import compiler, dsl
from kfp.kubernetes.kubernetes_executor_config_pb2 import KubernetesExecutorConfig
from kfp.pipeline_spec.pipeline_spec_pb2 import PipelineSpec

from pipelines.kubeflow import resources
from pipelines.kubeflow.resources import Resources
from pipelines.kubeflow.tasks import TaskFactory
from runtime import parameters
from runtime.spec import Component, Params
from tests.pipelines.compiled import compile_text, documents
from tests.pipelines.kubeflow.pod import pod_of

# The releases of Kubernetes that KFP 2.17 is tested with (.github/workflows).
KUBERNETES = ("1.33", "1.36")
TOY = Component(name="toy", summary="Toy.", image="cpu", params=Params, outputs=("things",))
EVERYTHING = {
    "cpu": "500m",
    "cpu_limit": "4",
    "memory": "8Gi",
    "gpu": {"type": "nvidia.com/gpu", "count": 2},
    "shared_memory": "2Gi",
    "scratch_volume": {"size": "100Gi", "mount_path": "/tmp", "storage_class": "fast"},
    "volumes": [{"claim": "corpora", "mount_path": "/corpora", "sub_path": "flickr8k"}],
    "node_selector": {"pool": "gpu"},
    "node_affinity": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a", "b"]}
    ],
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "labels": {"kueue.x-k8s.io/queue-name": "bifocal"},
    "annotations": {"sidecar.istio.io/inject": "false"},
    "security_context": {"run_as_user": 1000, "run_as_group": 1000, "run_as_non_root": True},
    "secrets": ["bifocal-s3"],
}


def pods(text: str) -> dict[str, dict[str, Any]]:
    pipeline, settings = documents(text)
    executors = pipeline["deploymentSpec"]["executors"]
    return {
        name: pod_of(executor["container"], settings[name]) for name, executor in executors.items()
    }


@pytest.fixture
def everything(tmp_path: Path) -> dict[str, Any]:
    """Pod of a step that sets every key of resources.yaml."""
    values = yaml.safe_load(resources.FILE.read_text())
    changes = {
        "default": EVERYTHING,
        "image_pull_secrets": ["registry"],
        "image_pull_policy": "Always",
    }
    values = {**parameters.merge(values, changes), "steps": {}}
    task = TaskFactory(Resources.model_validate(values), {"A": "b"}, 1)
    path = tmp_path / "toys.yaml"
    compiler.Compiler().compile(
        dsl.pipeline(name="toys")(lambda: task(TOY, {}) and None), str(path)
    )
    return pods(path.read_text())["exec-toy"]


def test_every_setting_reaches_the_pod(everything: dict[str, Any]) -> None:
    spec = everything["spec"]
    (main,) = spec["containers"]
    assert main["resources"] == {
        "requests": {"cpu": "500m", "memory": "8Gi"},
        "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
    }
    assert {mount["mountPath"] for mount in main["volumeMounts"]} == {
        "/corpora",
        "/tmp",
        "/dev/shm",
    }
    assert spec["volumes"][0] == {
        "name": "corpora",
        "persistentVolumeClaim": {"claimName": "corpora"},
    }
    assert (
        spec["volumes"][1]["ephemeral"]["volumeClaimTemplate"]["spec"]["storageClassName"] == "fast"
    )
    assert spec["nodeSelector"] == EVERYTHING["node_selector"]
    required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [{"matchExpressions": EVERYTHING["node_affinity"]}]
    assert everything["metadata"]["labels"] == EVERYTHING["labels"]
    assert everything["metadata"]["annotations"] == EVERYTHING["annotations"]
    assert main["securityContext"] == {"runAsUser": 1000, "runAsGroup": 1000, "runAsNonRoot": True}
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert main["imagePullPolicy"] == "Always"
    variables = {entry["name"] for entry in main["env"]}
    assert {"A", "KFP_RUN_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"} <= variables
    assert "MLFLOW_TRACKING_PASSWORD" not in variables


@pytest.mark.parametrize("version", KUBERNETES)
def test_every_pod_is_valid_for_kubernetes(everything: dict[str, Any], version: str) -> None:
    for pod in [everything, *pods(compile_text()).values()]:
        kubernetes_validate.validate(pod, version, strict=True)


def test_the_compiled_pipeline_is_valid_for_the_schemas_of_kfp() -> None:
    for nodes in (1, 2):
        pipeline, settings = documents(compile_text(nodes=nodes))
        # Unknown fields are errors.
        assert json_format.ParseDict(pipeline, PipelineSpec()).pipeline_info.name == "bifocal"
        for setting in settings.values():
            json_format.ParseDict(setting, KubernetesExecutorConfig())


def test_a_step_gets_only_the_secrets_that_it_names() -> None:
    def variables(executor: str) -> set[str]:
        (main,) = pods(compile_text())[executor]["spec"]["containers"]
        return {
            entry["name"] for entry in main["env"] if "secretKeyRef" in entry.get("valueFrom", {})
        }

    assert "BIFOCAL_NOTICE_URL" in variables("exec-notify")
    assert "AWS_SECRET_ACCESS_KEY" not in variables("exec-notify")
    assert {"BIFOCAL_NOTICE_URL", "AWS_SECRET_ACCESS_KEY"} <= variables("exec-promote")
    assert "BIFOCAL_NOTICE_URL" not in variables("exec-train-embedding")
    assert "AWS_SECRET_ACCESS_KEY" in variables("exec-train-embedding")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"default": {"memory": "lots"}}, "memory"),
        ({"default": {"memory": "1.5Gi"}}, "memory"),  # kfp takes integers only
        ({"steps": {"train_embeddings": {}}}, "did you mean 'train_embedding'"),
        ({"gpus": 1}, "gpus"),
        ({"steps": {"evaluate": {"shards": 2}}}, "cannot be sharded"),
        ({"steps": {"evaluate": {"nodes": 2}}}, "only train_embedding runs on several nodes"),
        (
            {"steps": {"evaluate": {"secrets": ["bifocal-s4"]}}},
            "evaluate: 'secrets' has no 'bifocal-s4'; did you mean",
        ),
        ({"default": {"retry_factor": 1.5}}, "retry_factor: Input should be a valid integer"),
    ],
)
def test_invalid_resources_are_an_error(
    change: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    values = parameters.merge(yaml.safe_load(resources.FILE.read_text()), change)
    (tmp_path / "resources.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match=expected):
        resources.load(tmp_path / "resources.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "images.json is not YAML"),
        ('["a"]', "whole file: .*dictionary"),
        ('{"cpux": "a"}', "cpux.*'cpu', 'gpu'"),
    ],
)
def test_invalid_images_are_an_error(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "images.json").write_text(text)
    with pytest.raises(ValueError, match=expected):
        resources.load_images(tmp_path / "images.json")


def test_images_of_the_file_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "images.json").write_text(json.dumps({"cpu": "registry.example/bifocal@sha256:1"}))
    loaded = resources.load(images=resources.load_images(tmp_path / "images.json"))
    assert loaded.images["cpu"] == "registry.example/bifocal@sha256:1"
    assert loaded.images["gpu"] == resources.load().images["gpu"]
