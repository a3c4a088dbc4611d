"""Messages that the drivers of a real Kubeflow passed to the steps
(``tests/cluster/record.py``)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.kubeflow.executor import ExecutorInput

FOLDER = Path(__file__).parents[2] / "cluster" / "recorded"


def messages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the task and the ExecutorInput of each recorded step."""
    for file in sorted(FOLDER.glob("*.json")):
        yield from json.loads(file.read_text())["executor_inputs"].items()


def test_recorded_messages_are_parsed() -> None:
    """Inputs have the ids of ML Metadata as names and no type; the driver adds the output
    ``executor-logs``."""
    tasks = set()
    for task, message in messages():
        parsed = ExecutorInput.parse(json.dumps(message))
        artifacts = message["inputs"].get("artifacts", {})
        assert parsed.inputs == {
            name: Path("/minio") / entry["artifacts"][0]["uri"].removeprefix("minio://")
            for name, entry in artifacts.items()
        }
        assert "executor-logs" in parsed.outputs
        assert "seed" in parsed.values
        tasks.add(task)
    assert tasks > {
        "fingerprint",
        "train-embedding",
        "register-model",
        "find-changes",
        "promote-2",
        "notify",
    }
