"""An engine that runs the steps that read the user's files."""

import os
from dataclasses import dataclass
from unittest.mock import patch

from click.testing import CliRunner

from components.__main__ import main as components
from pipelines.local.engine import Exit, Pod
from tests.pipelines.local.fake_engine import FakeEngine

READERS = ("fingerprint", "prepare_dataset")


@dataclass
class ReadingEngine(FakeEngine):
    """Runs the steps that read S3 in this process; the others write empty artifacts."""

    def run(self, pod: Pod) -> Exit:
        if pod.command[3] not in READERS:
            return super().run(pod)
        self.started.append(pod.command[3])
        tracking = {"MLFLOW_TRACKING_URI": os.environ["MLFLOW_TRACKING_URI"]}
        with patch.dict(os.environ, {**pod.environment, **tracking}):
            result = CliRunner().invoke(components, pod.command[3:])
        pod.log.write_text(f"{result.output}\n{result.exception}\n")
        return Exit(result.exit_code)
