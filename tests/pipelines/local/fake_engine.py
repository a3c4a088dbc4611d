"""An engine that runs no step."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

from components.catalog import all_components
from pipelines.local.engine import Exit, Pod
from runtime import artifacts
from runtime.kubeflow.executor import ExecutorInput


@dataclass
class FakeEngine:
    """Writes an empty artifact per output, or fails the first ``failures[stage]`` attempts of a
    stage.

    Attributes:
        parameters: output parameters by name; any other is the name of its stage with its own.
    """

    failures: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    messages: dict[str, Any] = field(default_factory=dict)
    digest: str = "first"

    def image(self, image: str) -> str:
        return f"{image}@{self.digest}"

    def run(self, pod: Pod) -> Exit:
        stage, message = pod.command[3], json.loads(pod.command[5])
        self.started.append(stage)
        self.messages[stage] = message
        if self.failures.get(stage, 0) > 0:
            self.failures[stage] -= 1
            pod.log.write_text(f"error: no memory\n{self.failures[stage]} failures left\n")
            return Exit(3)
        component, given = all_components()[stage], ExecutorInput.parse(pod.command[5])
        for name in component.outputs:
            path = given.outputs[name]
            artifacts.commit(artifacts.open_partial(path, {}), path, {"key": stage})
        values = {
            name: self.parameters.get(name, f"{stage} {name}")
            for name in component.parameter_outputs
        }
        given.write_output(replace(component, pages=()), {}, values)
        return Exit(0)

    def stop(self) -> None:
        raise AssertionError("no test interrupts this engine")
