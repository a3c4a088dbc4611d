"""An engine that runs no step."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from components.catalog import all_components
from pipelines.local.engine import Exit, Pod
from runtime import artifacts


@dataclass
class FakeEngine:
    """Writes an empty artifact per output, or fails the first ``failures[stage]`` attempts of a stage.

    Attributes:
        parameters: output parameters by name; any other is the name of its stage with its own.
    """

    failures: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    messages: dict[str, Any] = field(default_factory=dict)
    digest: str = "first"

    def root(self, pod: Path) -> Path:
        return pod

    def image(self, image: str) -> str:
        return f"{image}@{self.digest}"

    def own(self, pod: Path) -> None:
        """The tests' user owns the folders."""

    def run(self, pod: Pod) -> Exit:
        stage, message = pod.command[3], json.loads(pod.command[5])
        self.started.append(stage)
        self.messages[stage] = message
        if self.failures.get(stage, 0) > 0:
            self.failures[stage] -= 1
            pod.log.write_text(f"error: no memory\n{self.failures[stage]} failures left\n")
            return Exit(3)
        for name, entry in message["outputs"]["artifacts"].items():
            path = Path(entry["artifacts"][0]["customPath"])
            if name in all_components()[stage].outputs:
                artifacts.commit(artifacts.open_partial(path, {}), path, {"key": stage})
        for name, entry in message["outputs"].get("parameters", {}).items():
            Path(entry["outputFile"]).write_text(self.parameters.get(name, f"{stage} {name}"))
        return Exit(0)

    def stop(self) -> None:
        raise AssertionError("no test interrupts this engine")
