"""Record the answers of a cluster about a run, for the tests that compare our code and local runs
with them.

    KUBECONFIG=... KFP_ENDPOINT=... python -m tests.cluster.record RUN_ID NAME     # writes
    recorded/NAME.json

The file has the states of Kubeflow's API, the nodes of Argo's workflow, the outputs of the drivers,
the ExecutorInput of each started task, the kinds of events of its pods, and the notice.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.cluster import EXECUTOR, ROOT, Cluster, from_environment

FOLDER = Path(__file__).parent / "recorded"
NODE = ("displayName", "type", "phase", "message", "finishedAt")


def record(cluster: Cluster, run: str) -> dict[str, Any]:
    """Return the answers about a run that has ended."""
    answer = cluster.get(f"runs/{run}")
    workflow = cluster.workflow(run)
    nodes = sorted(
        workflow["status"]["nodes"].values(),
        key=lambda node: (str(node["startedAt"]), node["name"]),
    )
    return {
        "run": {
            name: answer[name]
            for name in ("state", "created_at", "finished_at", "recurring_run_id")
            if name in answer
        },
        "tasks": {
            task["display_name"]: task.get("state", "")
            for task in answer["run_details"]["task_details"]
            if "display_name" in task
        },
        "workflow": {
            "status": {
                "phase": workflow["status"]["phase"],
                "nodes": {
                    node["id"]: {"name": node["name"]}
                    | {name: node[name] for name in NODE if node.get(name)}
                    for node in nodes
                },
            }
        },
        "driver_outputs": {node["name"]: _outputs(node) for node in nodes if _outputs(node)},
        "executor_inputs": dict(filter(None, map(_executor_input, nodes))),
        "events": _events(cluster, run),
        "notice": cluster.notice(run),
    }


def _outputs(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the decisions of a driver."""
    parameters = node.get("outputs", {}).get("parameters", []) if node["type"] == "Pod" else []
    return {
        entry["name"]: entry["value"]
        for entry in parameters
        if entry["name"] in ("cached-decision", "condition") and "value" in entry
    }


def _executor_input(node: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the task of an attempt and its ExecutorInput, which the driver passes in the patch of
    the pod."""
    found = EXECUTOR.search(node["name"])
    parameters = {
        entry["name"]: entry.get("value") for entry in node.get("inputs", {}).get("parameters", [])
    }
    if not found or not parameters.get("pod-spec-patch"):
        return None
    command = json.loads(parameters["pod-spec-patch"])["containers"][0]["command"]
    message = json.loads(command[command.index("--executor_input") + 1])
    for group in message.get("inputs", {}).get("artifacts", {}).values():
        for artifact in group["artifacts"]:
            artifact.pop("metadata", None)  # metrics of the stages
    return found["task"], message


def _events(cluster: Cluster, run: str) -> list[str]:
    pods = json.loads(
        cluster.kubectl("get", "pods", "--selector", f"pipeline/runid={run}", "--output", "json")
    )
    names = {pod["metadata"]["name"] for pod in pods["items"]}
    events = json.loads(cluster.kubectl("get", "events", "--output", "json"))["items"]
    return sorted(
        {event["reason"] for event in events if event["involvedObject"].get("name") in names}
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    answer = record(from_environment(ROOT), sys.argv[1])
    parts = (
        f"{json.dumps(name)}: {json.dumps(part, sort_keys=True)}" for name, part in answer.items()
    )
    (FOLDER / f"{sys.argv[2]}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")
