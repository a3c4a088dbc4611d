"""Recorded answers of a real Kubeflow and Argo: the reasons that a notice gives."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from runtime.kubeflow.runs import PipelineState, parse_workflow

FOLDER = Path(__file__).parents[2] / "cluster" / "recorded"
GRAPH = "exit-handler-1"


def recorded(name: str) -> Any:
    """Return the recorded answers about a run (``tests/cluster/record.py``)."""
    return json.loads((FOLDER / f"{name}.json").read_text())


def test_a_driver_that_succeeded_at_its_second_attempt_is_no_reason() -> None:
    """The API server was restarted while drivers ran: one was repeated, and its second record
    failed the next ones."""
    answer = recorded("api_server_restarted")
    attempts = [
        state
        for name, state in answer["tasks"].items()
        if name.startswith("pretrain-sorter-driver(")
    ]
    assert attempts == ["FAILED", "SUCCEEDED"]
    reason = "main: Error (exit code 1)"
    failures = {
        f"{task}-driver": reason for task in ("extract-features", "vectorize-captions", "notify")
    }
    assert parse_workflow(answer["workflow"], GRAPH) == PipelineState("Failed", failures)


def test_a_driver_without_a_result_is_not_repeated_and_is_named() -> None:
    """The API server was away again; ``deploy/retries.yaml`` let no driver write a second
    record."""
    answer = recorded("api_server_away")
    attempts = [
        state for name, state in answer["tasks"].items() if name.startswith("release-driver(")
    ]
    assert attempts == ["FAILED"]
    ((task, reason),) = parse_workflow(answer["workflow"], GRAPH).failures.items()
    assert task == "release-driver"
    assert "workflowtaskresults" in reason
    assert f"failed: {task}: wait: Error" in answer["notice"]


@pytest.mark.parametrize(("name", "attempts"), [("train_failing", 1), ("train_retried", 2)])
def test_a_failed_step_is_named_without_its_attempt(name: str, attempts: int) -> None:
    """The exit task got the state RUNNING and no error. The second run had the policy of
    ``deploy/retries.yaml``."""
    answer = recorded(name)
    pods = [
        node
        for node in answer["workflow"]["status"]["nodes"].values()
        if ".evaluate(0).executor(" in node["name"]
    ]
    assert [pod["phase"] for pod in pods] == ["Failed"] * attempts
    status = answer["executor_inputs"]["notify"]["inputs"]["parameterValues"]["status"]
    assert (status["state"], status["error"], status["pipelineTaskName"]) == ("RUNNING", {}, GRAPH)
    assert parse_workflow(answer["workflow"], GRAPH) == PipelineState(
        "Failed", {"evaluate": "main: OOMKilled (exit code 137)"}
    )


@pytest.mark.parametrize(
    ("name", "state"),
    [("train", "COMPLETE"), ("retrain_quiet", "RUNNING"), ("retrain_first", "COMPLETE")],
)
def test_a_run_that_succeeded_has_no_reason_whatever_the_exit_task_got(
    name: str, state: str
) -> None:
    answer = recorded(name)
    assert (
        answer["executor_inputs"]["notify"]["inputs"]["parameterValues"]["status"]["state"] == state
    )
    assert parse_workflow(answer["workflow"], GRAPH) == PipelineState("Succeeded", {})
    assert not answer["notice"]


@pytest.mark.parametrize("name", ["train_failing", "train"])
def test_a_compressed_status_has_the_state_of_the_plain_one(name: str) -> None:
    """Argo packs the nodes of a workflow above a megabyte as gzip in Base64, and leaves ``nodes``
    out."""
    workflow = recorded(name)["workflow"]
    status = dict(workflow["status"])
    nodes = json.dumps(status.pop("nodes")).encode()
    packed = status | {"compressedNodes": base64.b64encode(gzip.compress(nodes)).decode()}
    assert parse_workflow(workflow | {"status": packed}, GRAPH) == parse_workflow(workflow, GRAPH)
