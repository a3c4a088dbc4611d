"""Recorded answers of a real Kubeflow and Argo: the reasons that a notice gives."""

import json
from pathlib import Path
from typing import Any

from runtime.kubeflow.runs import RunState, parse_workflow

FOLDER = Path(__file__).parents[3] / "cluster" / "recorded"
GRAPH = "exit-handler-1"


def recorded(name: str) -> Any:
    """Return the recorded answers about a run (``tests/cluster/record.py``)."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_a_driver_that_succeeded_at_its_second_attempt_is_no_reason() -> None:
    """The API server was restarted while drivers ran: one was repeated, and its second record failed the next ones."""
    answer = recorded("api_server_restarted")
    attempts = [state for name, state in answer["tasks"].items() if name.startswith("pretrain-sorter-driver(")]
    assert attempts == ["FAILED", "SUCCEEDED"]
    reason = "main: Error (exit code 1)"
    failures = {f"{task}-driver": reason for task in ("extract-features", "vectorize-captions", "notify")}
    assert parse_workflow(answer["workflow"], GRAPH) == RunState("Failed", failures)
