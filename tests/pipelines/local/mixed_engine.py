"""An engine that runs most steps in the process of the test."""

import os
from dataclasses import dataclass
from unittest.mock import patch

from click.testing import CliRunner

from components.__main__ import main as components
from pipelines.local.engine import Exit, HostEngine, Pod


@dataclass
class MixedEngine(HostEngine):
    """Runs the steps in ``processes`` as processes, the others in this one: each process imports
    for seconds."""

    processes: tuple[str, ...] = ("prepare_dataset", "notify")

    def run(self, pod: Pod) -> Exit:
        if pod.command[3] in self.processes:
            return super().run(pod)
        with patch.dict(os.environ, {**pod.environment, **self.environment}):
            result = CliRunner().invoke(components, pod.command[3:])
        pod.log.write_text(f"{result.output}\n{result.exception}\n")
        return Exit(result.exit_code)
