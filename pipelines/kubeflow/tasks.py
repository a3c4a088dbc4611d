"""Tasks of the compiled pipeline: container components with their pods, retries, shards and
machines of a TrainJob."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml
from kfp import components, dsl, kubernetes
from pydantic.alias_generators import to_camel

from components.catalog import all_components
from components.cluster.steps import NOTIFY, TRAIN_DISTRIBUTED
from pipelines.kubeflow.resources import Resources, StepResources
from runtime.identity import image_key
from runtime.kubeflow.executor import CODE, PAGE, PARAMETERS, SCORES
from runtime.kubeflow.node import SETTINGS, NodeSettings
from runtime.process import processes_of_one_machine
from runtime.shards import LISTING
from runtime.spec import Component

RUN_ID = "KFP_RUN_ID"
STRING, ARTIFACT = "String", "Artifact"
# Kubeflow's page shows Metrics as a table that compares runs, HTML as a page, and lists Datasets
# and Models by name.
ARTIFACT_TYPES = {
    "dataset": "Dataset",
    "features": "Dataset",
    "text": "Dataset",
    "sorter": "Model",
    "embedding": "Model",
    "onnx": "Model",
}
# Variables of Kubeflow's MLflow plugin (kubeflow/pipelines 2.17,
# backend/src/v2/common/plugins/mlflow/handler.go:149): with them, the training logs to the run of
# the waiting step.
MLFLOW_PLUGIN = (
    "KFP_MLFLOW_CONFIG",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_RUN_ID",
    "MLFLOW_TRACKING_AUTH",
    "MLFLOW_WORKSPACE",
)


@dataclass(frozen=True)
class TaskFactory:
    """Adds tasks to the pipeline that kfp is tracing; ``environment`` has the variables of every
    container."""

    resources: Resources
    environment: Mapping[str, str]
    seed: int

    def __call__(
        self, component: Component, section: Mapping[str, Any], **inputs: Any
    ) -> dsl.PipelineTask:
        """Add one task with the parameters ``section``; inputs are artifacts of other tasks, or
        strings."""
        types = {PARAMETERS: STRING, CODE: STRING} | {
            name: _type_of(value) for name, value in inputs.items()
        }
        step, resources = self.resources.for_step(component.name), self.resources
        processes = step.gpu.count if step.gpu else 1
        declared = declare(
            component, resources.images[component.image], self.environment, types, processes
        )
        # One canonical JSON string: Kubeflow turns nested integers into floats.
        parameters = json.dumps(
            {"seed": self.seed, component.name: section}, sort_keys=True, separators=(",", ":")
        )
        # The same JSON, in which Kubeflow sees no placeholder, such as {{$}} in a text of the user.
        parameters = parameters.replace("{{", "{\\u007b")
        # The cache key of Kubeflow holds arguments and image names, so the hash of the code is an
        # argument.
        task: dsl.PipelineTask = declared(
            **{PARAMETERS: parameters, CODE: image_key(component)}, **inputs
        )
        task.set_caching_options(resources.cache and not component.side_effects)
        configure_pod(task, step, resources.secrets)
        if store := resources.store:
            kubernetes.mount_pvc(
                task, pvc_name=store.claim, mount_path=store.mount_path, sub_path=store.sub_path
            )
        if resources.image_pull_secrets:
            kubernetes.set_image_pull_secrets(task, resources.image_pull_secrets)
        if resources.image_pull_policy:
            kubernetes.set_image_pull_policy(task, resources.image_pull_policy)
        return task

    def stage(
        self, component: Component, section: Mapping[str, Any], **inputs: Any
    ) -> dsl.PipelineTask:
        """Add a stage as one task, shards or a TrainJob; return the task whose outputs the next
        stages read."""
        step = self.resources.for_step(component.name)
        if step.nodes > 1:
            settings = node_settings(step, self.resources, self.environment)
            # An environment variable is not in the cache key: another commit or node selector does
            # not train again.
            job = replace(
                self, environment={**self.environment, SETTINGS: settings.model_dump_json()}
            )
            values = {
                "values": section,
                "nodes": step.nodes,
                "image": self.resources.images[component.image],
            }
            return job(TRAIN_DISTRIBUTED, values, **inputs)
        if (
            component.merge_step is None
            or step.shards == 1
            or not component.typed(section, self.seed).shardable
        ):
            return self(component, section, **inputs)
        if component.listed_paths:
            listed = self(component, section, **inputs, shard=f"0/{step.shards}")
            inputs[LISTING] = listed.output
        shards = {
            f"shard_{number}": self(
                component, section, **inputs, shard=f"{number}/{step.shards}"
            ).output
            for number in range(1, step.shards + 1)
        }
        return self(all_components()[component.merge_step], {}, **shards)


def _type_of(value: Any) -> str:
    if isinstance(value, dsl.pipeline_channel.PipelineArtifactChannel):
        return str(value.channel_type).removeprefix("system.").partition("@")[0]
    return STRING


def declare(
    component: Component,
    image: str,
    environment: Mapping[str, str],
    inputs: Mapping[str, str],
    processes: int = 1,
) -> Any:
    """Return the step as a kfp container component, whose image needs no kfp; torchrun starts
    several ``processes``."""
    if component is NOTIFY:
        inputs = {**inputs, "status": "PipelineTaskFinalStatus"}
    outputs = {name: ARTIFACT_TYPES.get(name, ARTIFACT) for name in component.outputs}
    outputs |= {name: STRING for name in component.parameter_outputs}
    if component.metrics:
        outputs[SCORES] = "Metrics"
    if component.pages:
        outputs[PAGE] = "HTML"
    launcher = ["python", *processes_of_one_machine(processes)]
    container = {
        "image": image,
        "env": dict(sorted(environment.items())),
        "command": [*launcher, "-m", "components", component.name],
        "args": ["--executor-input", {"executorInput": None}],
    }
    described = {
        "name": component.name,
        "description": component.summary,
        "inputs": [{"name": name, "type": kind} for name, kind in inputs.items()],
        "outputs": [{"name": name, "type": kind} for name, kind in outputs.items()],
        "implementation": {"container": container},
    }
    return components.load_component_from_text(yaml.safe_dump(described))


def configure_pod(
    task: dsl.PipelineTask, step: StepResources, secrets: Mapping[str, Mapping[str, str]]
) -> None:
    """Set the pod of ``task``; ``secrets`` maps the keys of every secret to environment
    variables."""
    task.set_cpu_request(step.cpu).set_memory_request(step.memory).set_memory_limit(step.memory)
    if step.cpu_limit:
        task.set_cpu_limit(step.cpu_limit)
    if step.gpu:
        task.set_accelerator_type(step.gpu.type).set_accelerator_limit(step.gpu.count)
    for label, value in sorted(step.node_selector.items()):
        kubernetes.add_node_selector(task, label_key=label, label_value=value)
    if step.node_affinity:
        # One term: its expressions must all match. The driver combines several terms by "or".
        expressions = [requirement.model_dump() for requirement in step.node_affinity]
        kubernetes.add_node_affinity(task, match_expressions=expressions)
    for toleration in step.tolerations:
        kubernetes.add_toleration(task, **toleration.model_dump())
    for volume in step.volumes:
        kubernetes.mount_pvc(
            task, pvc_name=volume.claim, mount_path=volume.mount_path, sub_path=volume.sub_path
        )
    if scratch := step.scratch_volume:
        kubernetes.add_ephemeral_volume(
            task,
            volume_name="scratch",
            mount_path=scratch.mount_path,
            access_modes=["ReadWriteOnce"],
            size=scratch.size,
            storage_class_name=scratch.storage_class,
        )
    if step.shared_memory:
        kubernetes.empty_dir_mount(
            task,
            volume_name="shm",
            mount_path="/dev/shm",
            medium="Memory",
            size_limit=step.shared_memory,
        )
    # KFP labels every pod of a run (backend/src/apiserver/template/v2_template.go:427). As a
    # variable, not an argument, the id is in no cache key.
    kubernetes.use_field_path_as_env(task, RUN_ID, "metadata.labels['pipeline/runid']")
    for name in sorted(step.secrets):
        # Optional: a missing secret or key is not an error.
        kubernetes.use_secret_as_env(
            task, secret_name=name, secret_key_to_env=dict(secrets[name]), optional=True
        )
    for label, value in sorted(step.labels.items()):
        kubernetes.add_pod_label(task, label, value)
    for annotation, value in sorted(step.annotations.items()):
        kubernetes.add_pod_annotation(task, annotation, value)
    if step.security_context:
        kubernetes.set_security_context(task, **step.security_context.model_dump())
    kubernetes.set_timeout(task, step.timeout)
    if step.retries:
        task.set_retry(
            step.retries,
            backoff_duration=f"{step.retry_delay}s",
            backoff_factor=step.retry_factor,
            backoff_max_duration=f"{step.retry_deadline}s",
        )


def node_settings(
    step: StepResources, resources: Resources, environment: Iterable[str]
) -> NodeSettings:
    """Return the machines' settings for the training ``step``; each gets the variables of the
    waiting step."""
    gpu, user = {step.gpu.type: str(step.gpu.count)} if step.gpu else {}, None
    if step.security_context:
        given = step.security_context.model_dump(exclude_none=True)
        user = {to_camel(name): value for name, value in given.items()}
    return NodeSettings(
        runtime=resources.trainer.runtime,
        folder=resources.trainer.folder,
        resources={"cpu": step.cpu, "memory": step.memory, **gpu},
        processes=step.gpu.count if step.gpu else 1,
        environment=sorted({*environment, RUN_ID, *MLFLOW_PLUGIN}),
        secrets={name: dict(resources.secrets[name]) for name in sorted(step.secrets)},
        shared_memory=step.shared_memory,
        volumes=_volumes(step),
        labels=step.labels,
        annotations=step.annotations,
        node_selector=step.node_selector,
        node_affinity=[requirement.model_dump() for requirement in step.node_affinity],
        tolerations=[toleration.model_dump(exclude_none=True) for toleration in step.tolerations],
        image_pull_secrets=resources.image_pull_secrets,
        security_context=user,
        timeout=step.timeout,
        queue_timeout=step.queue_timeout,
    )


def _volumes(step: StepResources) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"persistentVolumeClaim": {"claimName": volume.claim}, "mountPath": volume.mount_path}
        | ({"subPath": volume.sub_path} if volume.sub_path else {})
        for volume in step.volumes
    ]
    if step.scratch_volume:
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": step.scratch_volume.size}},
            "storageClassName": step.scratch_volume.storage_class,
        }
        template = {"spec": {key: value for key, value in claim.items() if value is not None}}
        path = step.scratch_volume.mount_path
        volumes.append({"ephemeral": {"volumeClaimTemplate": template}, "mountPath": path})
    return volumes
