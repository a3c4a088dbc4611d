"""Declaration of a step as a component of Kubeflow: typed inputs and outputs, and its container."""

from collections.abc import Mapping
from typing import Any

import yaml
from kfp import components

from components.cluster.notify.spec import COMPONENT as NOTIFY
from runtime.kubeflow.executor import PAGE, SCORES
from runtime.process import processes_of_one_machine
from runtime.spec import Component

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
