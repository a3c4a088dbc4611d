"""Tasks of the compiled pipeline: container components with their resources, secrets and retries."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kfp import components, dsl, kubernetes

from components.cluster.notify.spec import COMPONENT as NOTIFY
from pipelines.kubeflow.pods import configure_pod
from pipelines.kubeflow.resources import Resources
from runtime.identity import image_key
from runtime.kubeflow.executor import CODE, PAGE, PARAMETERS, SCORES
from runtime.spec import Component
from runtime.torchrun import processes_of_one_machine

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class TaskFactory:
    """Adds tasks to the pipeline that kfp is tracing; ``environment`` has the variables of every container."""

    resources: Resources
    environment: Mapping[str, str]
    seed: int

    def __call__(self, component: Component, section: Mapping[str, Any], **inputs: Any) -> dsl.PipelineTask:
        """Add one task with the parameters ``section``; inputs are artifacts of other tasks, or strings."""
        types = {PARAMETERS: STRING, CODE: STRING} | {name: _type_of(value) for name, value in inputs.items()}
        step = self.resources.for_step(component.name)
        processes = step.gpu.count if step.gpu else 1
        declared = declare(component, self.resources.images[component.image], self.environment, types, processes)
        # One canonical JSON string: Kubeflow turns nested integers into floats.
        parameters = json.dumps({"seed": self.seed, component.name: section}, sort_keys=True, separators=(",", ":"))
        # The cache key of Kubeflow holds arguments and image names, so the hash of the code is an argument.
        task: dsl.PipelineTask = declared(**{PARAMETERS: parameters, CODE: image_key(component)}, **inputs)
        task.set_caching_options(not component.side_effects)
        configure_pod(task, step, self.resources.secrets)
        store = self.resources.store
        if store:
            kubernetes.mount_pvc(task, pvc_name=store.claim, mount_path=store.mount_path, sub_path=store.sub_path)
        if self.resources.image_pull_secrets:
            kubernetes.set_image_pull_secrets(task, self.resources.image_pull_secrets)
        if self.resources.image_pull_policy:
            kubernetes.set_image_pull_policy(task, self.resources.image_pull_policy)
        return task


def _type_of(value: Any) -> str:
    if isinstance(value, dsl.pipeline_channel.PipelineArtifactChannel):
        return str(value.channel_type).removeprefix("system.").partition("@")[0]
    return STRING


STRING, ARTIFACT = "String", "Artifact"
# Kubeflow's page shows Metrics as a table that compares runs, HTML as a page, and lists Datasets and Models by name.
ARTIFACT_TYPES = {
    "dataset": "Dataset",
    "features": "Dataset",
    "text": "Dataset",
    "sorter": "Model",
    "embedding": "Model",
    "onnx": "Model",
}


def declare(
    component: Component, image: str, environment: Mapping[str, str], inputs: Mapping[str, str], processes: int = 1
) -> Any:
    """Return the step as a kfp container component, whose image needs no kfp; torchrun starts several ``processes``."""
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
    return components.load_component_from_text(
        yaml.safe_dump(
            {
                "name": component.name,
                "description": component.summary,
                "inputs": _typed(inputs),
                "outputs": _typed(outputs),
                "implementation": {"container": container},
            }
        )
    )


def _typed(types: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, kind in types.items()]
