"""Local runs against recorded runs of a real Kubeflow: states of the tasks, conditions, messages of
the steps."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.kubeflow.flows import FlowName
from pipelines.local.runner import LocalRun
from pipelines.local.task import TaskState
from tests.pipelines.compiled import SMALL_VALUES, compile_text
from tests.pipelines.local.fake_engine import FakeEngine

FOLDER = Path(__file__).parents[2] / "cluster" / "recorded"
GRAPHS = {"condition-2": "if-changed", "condition-3": "if-accepted", "condition-4": "if-not-worse"}
PHASES = {
    TaskState.COMPLETE: "Succeeded",
    TaskState.FAILED: "Failed",
    TaskState.CANCELED: "Skipped",
    TaskState.OMITTED: "Omitted",
}
# Kubeflow's own artifact, which the launcher writes.
LOGS = "executor-logs"


def recorded(name: str) -> Any:
    """Return the recorded answers about a run (``tests/cluster/record.py``)."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def phases(answer: Mapping[str, Any]) -> dict[str, str]:
    """Return the phase of each task and of each condition that does not hold."""
    found = {}
    for node in answer["workflow"]["status"]["nodes"].values():
        name = node["displayName"]
        task = (
            node["type"] == "Retry"
            and name not in ("root", "exit-handler-1", *GRAPHS)
            and "." in node["name"]
        )
        if (task or node["type"] == "Skipped") and not name.endswith(
            ("-driver", "executor", ".onExit")
        ):
            found[GRAPHS.get(name, name)] = node["phase"]
    return found


def shape(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names of a message's parameters and artifacts."""
    inputs, outputs = message["inputs"], message["outputs"]
    return {
        "parameters": set(inputs.get("parameterValues", {})),
        "inputs": set(inputs.get("artifacts", {})),
        "outputs": set(outputs.get("artifacts", {})) - {LOGS},
        "output parameters": set(outputs.get("parameters", {})),
    }


@pytest.mark.parametrize(
    ("name", "flow", "failures", "parameters"),
    [
        ("train", "train", {}, {}),
        ("retrain_quiet", "retrain", {}, {"changed": "false"}),
        ("train_failing", "train", {"evaluate": 99}, {}),
        ("train_retried", "train", {"evaluate": 99}, {}),
        ("monitor", "monitor", {}, {"version": "1"}),
        ("scheduled", "monitor", {}, {"version": "1"}),
        ("refresh", "refresh", {}, {"version": "1"}),
        ("retrain_first", "retrain", {}, {"changed": "true", "accepted": "true"}),
        ("retrain_refused", "retrain", {}, {"changed": "true", "accepted": "false"}),
        ("train_distributed", "train", {}, {}),
        (
            "canary_withdrawn",
            "retrain",
            {},
            {"changed": "true", "accepted": "true", "verdict": "withdraw"},
        ),
    ],
)
def test_a_local_run_does_what_the_recorded_run_did(
    name: str, flow: FlowName, failures: dict[str, int], parameters: dict[str, str], tmp_path: Path
) -> None:
    answer, engine = recorded(name), FakeEngine(failures, parameters)
    nodes, canary = 2 if name == "train_distributed" else 1, name.startswith("canary")
    text = compile_text(SMALL_VALUES, push=False, flow=flow, nodes=nodes, canary=canary)
    states = LocalRun(text, tmp_path, engine, sleep=lambda seconds: None).execute()
    assert {task: PHASES[state] for task, state in states.items()} == phases(answer)
    for task, message in answer["executor_inputs"].items():
        assert shape(engine.messages[task.removesuffix("-2").replace("-", "_")]) == shape(
            message
        ), task
