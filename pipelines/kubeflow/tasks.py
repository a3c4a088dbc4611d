"""Tasks of the compiled pipeline: container components with their resources, secrets and retries."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kfp import components, dsl, kubernetes

from components.cluster.fetch.spec import COMPONENT as FETCH
from components.cluster.notify.spec import COMPONENT as NOTIFY
from components.cluster.push.spec import COMPONENT as PUSH
from pipelines.kubeflow.resources import Resources
from runtime.artifacts import code_hash
from runtime.kfp_executor import CODE, PARAMETERS
from runtime.spec import Component

ROOT = Path(__file__).parents[2]
RUN_ID = "KFP_RUN_ID"
# These steps run for their side effects: never take them from the cache.
UNCACHED = (FETCH.name, PUSH.name, NOTIFY.name)


@dataclass(frozen=True)
class TaskFactory:
    """Adds tasks to the pipeline that kfp is tracing.

    Args:
        environment: variables of every container.
    """

    resources: Resources
    environment: Mapping[str, str]
    seed: int

    def __call__(self, component: Component, section: Mapping[str, Any], **inputs: Any) -> dsl.PipelineTask:
        """Add one task.

        Args:
            section: parameters of the step.
            inputs: artifacts of other tasks, or strings.
        """
        artifacts = [name for name, value in inputs.items() if _is_artifact(value)]
        strings = [PARAMETERS, CODE, *(name for name in inputs if name not in artifacts)]
        declared = self._declare(component, strings, artifacts)
        # One canonical JSON string: Kubeflow turns nested integers into floats.
        parameters = json.dumps({"seed": self.seed, component.name: section}, sort_keys=True, separators=(",", ":"))
        # The cache key of Kubeflow holds arguments and image names, so the hash of the code is an argument.
        task: dsl.PipelineTask = declared(
            **{PARAMETERS: parameters, CODE: code_hash(ROOT, component.all_code_paths)}, **inputs
        )
        self._configure(task, component.name)
        return task

    def _configure(self, task: dsl.PipelineTask, name: str) -> None:
        step = self.resources.for_step(name)
        task.set_cpu_request(step.cpu).set_memory_request(step.memory).set_memory_limit(step.memory)
        if step.gpu:
            task.set_accelerator_type(step.gpu.type).set_accelerator_limit(step.gpu.count)
        if step.retries:
            task.set_retry(
                step.retries,
                backoff_duration=f"{step.retry_delay}s",
                backoff_factor=step.retry_factor,
                backoff_max_duration=f"{step.retry_deadline}s",
            )
        task.set_caching_options(name not in UNCACHED)
        kubernetes.set_timeout(task, step.timeout)
        # KFP labels every pod of a run (apiserver/template/v2_template.go:427). As a variable, not an argument, the id
        # is in no cache key.
        kubernetes.use_field_path_as_env(task, RUN_ID, "metadata.labels['pipeline/runid']")
        for secret, keys in sorted(self.resources.secrets.items()):
            kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env=keys, optional=True)
        for label, value in sorted(step.node_selector.items()):
            kubernetes.add_node_selector(task, label_key=label, label_value=value)
        for toleration in step.tolerations:
            kubernetes.add_toleration(task, **toleration.model_dump())
        if step.shared_memory:
            kubernetes.empty_dir_mount(
                task, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit=step.shared_memory
            )

    def _declare(self, component: Component, strings: list[str], artifacts: list[str]) -> Any:
        """Return the step as a kfp container component: its image needs no kfp."""
        inputs = [{"name": name, "type": "String"} for name in strings]
        inputs += [{"name": name, "type": "Artifact"} for name in artifacts]
        if component is NOTIFY:
            inputs.append({"name": "status", "type": "PipelineTaskFinalStatus"})
        outputs = [{"name": name, "type": "Artifact"} for name in component.outputs]
        outputs += [{"name": name, "type": "String"} for name in component.parameter_outputs]
        return components.load_component_from_text(
            yaml.safe_dump(
                {
                    "name": component.name,
                    "description": component.summary,
                    "inputs": inputs,
                    "outputs": outputs,
                    "implementation": {
                        "container": {
                            "image": self.resources.images[component.image],
                            "env": dict(sorted(self.environment.items())),
                            "command": ["python", "-m", "components", component.name],
                            "args": ["--executor-input", {"executorInput": None}],
                        }
                    },
                }
            )
        )


def _is_artifact(value: Any) -> bool:
    return isinstance(value, dsl.pipeline_channel.PipelineArtifactChannel)
