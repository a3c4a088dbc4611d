"""A pipeline of two tasks in an exit handler, whose steps are functions of the test."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pipelines.local.engine import Exit, Pod

Step = Callable[[dict[str, Any], Pod], int]
RETRIES = {"maxRetryCount": 2, "backoffDuration": "30s", "backoffFactor": 2.0, "backoffMaxDuration": "3600s"}


def artifact(title: str = "system.Artifact") -> dict[str, Any]:
    return {"artifactType": {"schemaTitle": title, "schemaVersion": "0.0.1"}}


def task(name: str, *, cached: bool = True, **changes: Any) -> dict[str, Any]:
    caching = {"cachingOptions": {"enableCache": True}} if cached else {}
    return {"taskInfo": {"name": name}, "componentRef": {"name": f"comp-{name}"}, **caching, **changes}


def pipeline_text(*, first_cached: bool = True, both_cached: bool = True) -> str:
    """Return a pipeline: ``make`` writes an artifact and a parameter, ``use`` reads both, ``notify`` gets the state."""
    graph = {
        "make": task("make", cached=first_cached, retryPolicy=RETRIES),
        "use": task(
            "use",
            cached=both_cached,
            dependentTasks=["make"],
            inputs={
                "artifacts": {"toys": {"taskOutputArtifact": {"producerTask": "make", "outputArtifactKey": "toys"}}},
                "parameters": {
                    "digest": {"taskOutputParameter": {"producerTask": "make", "outputParameterKey": "digest"}}
                },
            },
        ),
    }
    status = {"status": {"taskFinalStatus": {"producerTask": "line"}}}
    exit_policy = {"triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}}
    root = {
        "line": task("line"),
        "notify": task("notify", dependentTasks=["line"], inputs={"parameters": status}, cached=False, **exit_policy),
    }
    executors = {
        f"exec-{name}": {"container": {"image": "toy:1", "command": ["run", name], "args": ["{{$}}"]}}
        for name in ("make", "use", "notify")
    }
    digest = {"parameters": {"digest": {"parameterType": "STRING"}}}
    components = {
        "comp-line": {"dag": {"tasks": graph}},
        "comp-make": {
            "executorLabel": "exec-make",
            "outputDefinitions": {"artifacts": {"toys": artifact("system.Dataset")}, **digest},
        },
        "comp-use": {"executorLabel": "exec-use", "inputDefinitions": {"artifacts": {"toys": artifact()}, **digest}},
        "comp-notify": {
            "executorLabel": "exec-notify",
            "inputDefinitions": {"parameters": {"status": {"parameterType": "TASK_FINAL_STATUS"}}},
        },
    }
    compiled = {
        "pipelineInfo": {"name": "toys"},
        "root": {"dag": {"tasks": root}},
        "components": components,
        "deploymentSpec": {"executors": executors},
    }
    fields = [{"name": "KFP_RUN_ID", "fieldPath": "metadata.labels['pipeline/runid']"}]
    pods = {f"exec-{name}": {"fieldPathAsEnv": fields, "activeDeadlineSeconds": "600"} for name in ("make", "use")}
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": pods}}}}
    return yaml.safe_dump_all([compiled, platform])


def make(message: dict[str, Any], pod: Pod) -> int:
    folder = Path(message["outputs"]["artifacts"]["toys"]["artifacts"][0]["customPath"])
    folder.mkdir()
    (folder / "toy.txt").write_text("a toy")
    (folder.parent / "undeclared.txt").write_text("no output")
    Path(message["outputs"]["parameters"]["digest"]["outputFile"]).write_text("d1")
    return 0


def succeed(message: dict[str, Any], pod: Pod) -> int:
    return 0


@dataclass
class ToyEngine:
    """Calls a function per task; ``calls`` has the pods of each task, ``messages`` the ExecutorInputs."""

    steps: dict[str, Step] = field(default_factory=dict)
    calls: dict[str, list[Pod]] = field(default_factory=dict)
    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def root(self, pod: Path) -> Path:
        return pod

    def image(self, image: str) -> str:
        return image

    def own(self, pod: Path) -> None:
        """The tests' user owns the folders."""

    def run(self, pod: Pod) -> Exit:
        name, message = pod.command[1], json.loads(pod.command[2])
        self.calls.setdefault(name, []).append(pod)
        self.messages.setdefault(name, []).append(message)
        pod.log.write_text(f"{name} runs\n")
        code = self.steps.get(name, make if name == "make" else succeed)(message, pod)
        return Exit(1, "deleted") if code == -1 else Exit(code)

    def stop(self) -> None:
        raise AssertionError("no test interrupts this engine")
