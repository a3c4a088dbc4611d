"""Tasks of the compiled pipeline: container components with their resources, secrets and retries."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp import dsl, kubernetes

from pipelines.kubeflow.declaration import STRING, declare
from pipelines.kubeflow.pods import configure_pod
from pipelines.kubeflow.resources import Resources
from runtime.identity import image_key
from runtime.kubeflow.executor import CODE, PARAMETERS
from runtime.spec import Component

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
        task.set_caching_options(self.resources.cache and not component.side_effects)
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
