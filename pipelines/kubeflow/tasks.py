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
from pipelines.kubeflow.pods import configure_pod
from pipelines.kubeflow.resources import Resources
from runtime.artifacts import code_hash
from runtime.kfp_executor import CODE, PARAMETERS
from runtime.spec import Component

ROOT = Path(__file__).parents[2]
# A branch name as revision may have new commits: never take fetched files from the cache.
UNCACHED = (FETCH.name,)


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
        self._configure(task, component)
        return task

    def _configure(self, task: dsl.PipelineTask, component: Component) -> None:
        task.set_caching_options(not component.side_effects and component.name not in UNCACHED)
        configure_pod(task, self.resources.for_step(component.name), self.resources.secrets)
        if self.resources.image_pull_secrets:
            kubernetes.set_image_pull_secrets(task, self.resources.image_pull_secrets)
        if self.resources.image_pull_policy:
            kubernetes.set_image_pull_policy(task, self.resources.image_pull_policy)

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
