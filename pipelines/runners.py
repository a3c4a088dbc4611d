"""The compiled pipeline without a cluster: its graph is walked here, each step run by an engine.

kfp's own local runners refuse container components on the host, and report a failed container as a success.
"""

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import yaml

from components import artifact
from pipelines.engines import Engine

OUTPUT = "executor_output.json"
FINGERPRINT = "fingerprint"


class State(Enum):
    """How a task ended."""

    SUCCEEDED = "succeeded"
    REUSED = "reused"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def good(self) -> bool:
        """Whether its outputs are there."""
        return self in (State.SUCCEEDED, State.REUSED)


@dataclass
class Run:
    """One run of a compiled pipeline, in a folder of its own. Run again there, it goes on where it failed.

    Args:
        text: what ``compile_pipeline`` gave.
        folder: of the tasks; each has its outputs, ``log.txt`` and what it answered.
        engine: what runs a step.
        arguments: of the pipeline, in the place of its defaults.
        parallel: steps at once.
        sleep: between retries, seconds.
    """

    text: str
    folder: Path
    engine: Engine
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 1
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.pipeline, *platform = yaml.safe_load_all(self.text)
        executors = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platform else {}
        self.deadlines = {name: float(pod.get("activeDeadlineSeconds", "inf")) for name, pod in executors.items()}
        self.states: dict[str, State] = {}

    def start(self) -> dict[str, State]:
        """Run it; returns how each task ended.

        Raises:
            ValueError: an argument is unknown, or the graph has what only a cluster can run.
        """
        known = self.pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
        unknown = sorted(set(self.arguments) - set(known))
        if unknown:
            raise ValueError(f"the pipeline has no argument {unknown[0]!r}; it has {', '.join(sorted(known))}")
        defaults = {name: given.get("defaultValue") for name, given in known.items()}
        self._graph(self.pipeline["root"]["dag"], {**defaults, **self.arguments}, {})
        return self.states

    def _graph(self, dag: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Mapping[str, Any]) -> str:
        """Run a graph's tasks; returns what went wrong, or nothing."""
        made: dict[str, dict[str, Any]] = {}
        problems: dict[str, str] = {}
        waiting = dict(dag["tasks"])
        running: dict[Future[str], str] = {}
        with ThreadPoolExecutor(self.parallel) as pool:
            while waiting or running:
                for name, task in list(waiting.items()):
                    needs = task.get("dependentTasks", [])
                    if any(need in waiting or need in running.values() for need in needs):
                        continue
                    del waiting[name]
                    always = task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
                    failed = [need for need in needs if need in problems]
                    if failed and not always:
                        self._end(name, State.SKIPPED, f"{failed[0]} did not succeed")
                        problems[name] = ""
                        continue
                    running[pool.submit(self._task, name, task, parameters, artifacts, made, problems)] = name
                done, _ = wait(running, return_when=FIRST_COMPLETED) if running else (set(), None)
                for future in done:
                    name = running.pop(future)
                    problem = future.result()
                    if problem:
                        problems[name] = problem
        return next((problem for problem in problems.values() if problem), "")

    def _task(
        self,
        name: str,
        task: Mapping[str, Any],
        parameters: Mapping[str, Any],
        artifacts: Mapping[str, Any],
        made: dict[str, dict[str, Any]],
        problems: Mapping[str, str],
    ) -> str:
        only_a_cluster = {"parameterIterator", "artifactIterator", "iteratorPolicy"} & set(task)
        if only_a_cluster or "condition" in task.get("triggerPolicy", {}):
            raise ValueError(f"{name}: local runners know tasks, nested graphs and exit tasks, no loops nor conditions")
        given = task.get("inputs", {})
        values = {
            key: self._parameter(source, parameters, problems) for key, source in given.get("parameters", {}).items()
        }
        found = {key: _artifact(source, artifacts, made) for key, source in given.get("artifacts", {}).items()}
        component = self.pipeline["components"][task["componentRef"]["name"]]
        if "dag" in component:
            return self._graph(component["dag"], values, found)
        state, problem, outputs = self._step(name, task, component, values, found)
        made[name] = outputs
        self._end(name, state, problem)
        return problem

    def _parameter(self, source: Mapping[str, Any], parameters: Mapping[str, Any], problems: Mapping[str, str]) -> Any:
        if "runtimeValue" in source:
            return source["runtimeValue"]["constant"]
        if "componentInputParameter" in source:
            return parameters[source["componentInputParameter"]]
        if "taskFinalStatus" in source:
            producer = source["taskFinalStatus"]["producerTask"]
            status: dict[str, Any] = {
                "state": "FAILED" if producer in problems else "SUCCEEDED",
                "pipelineJobResourceName": self.folder.name,
                "pipelineTaskName": producer,
            }
            return status | ({"error": {"message": problems[producer]}} if producer in problems else {})
        raise ValueError(f"local runners know no parameter from {sorted(source)}")

    def _step(
        self,
        name: str,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        values: Mapping[str, Any],
        inputs: Mapping[str, Any],
    ) -> tuple[State, str, dict[str, Any]]:
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        outputs = {
            key: {"name": key, "type": given["artifactType"], "uri": str(home / key), "metadata": {}}
            for key, given in component.get("outputDefinitions", {}).get("artifacts", {}).items()
        }
        message = {
            "inputs": {"parameterValues": values, "artifacts": _listed(inputs)},
            "outputs": {"artifacts": _listed(outputs), "outputFile": str(home / OUTPUT)},
        }
        container = self.pipeline["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
        text = json.dumps(message, sort_keys=True)
        fingerprint = sha256(json.dumps([message, container], sort_keys=True).encode()).hexdigest()
        cached = task.get("cachingOptions", {}).get("enableCache", False)
        if cached and _file(home / FINGERPRINT) == fingerprint and _whole(home / OUTPUT):
            return State.REUSED, "", _answered(home / OUTPUT)
        (home / OUTPUT).unlink(missing_ok=True)
        (home / FINGERPRINT).write_text(fingerprint)
        command = [part.replace("{{$}}", text) for part in [*container["command"], *container["args"]]]
        problem = self._attempts(name, task, container, command, self.deadlines.get(component["executorLabel"]), home)
        return (State.FAILED, problem, {}) if problem else (State.SUCCEEDED, "", _answered(home / OUTPUT))

    def _attempts(
        self,
        name: str,
        task: Mapping[str, Any],
        container: Mapping[str, Any],
        command: list[str],
        deadline: float | None,
        home: Path,
    ) -> str:
        policy = task.get("retryPolicy", {})
        retries, pause = policy.get("maxRetryCount", 0), _seconds(policy.get("backoffDuration", "0s"))
        for attempt in range(1 + retries):
            if attempt:
                self.sleep(pause)
                pause = min(pause * policy["backoffFactor"], _seconds(policy["backoffMaxDuration"]))
            click.secho(f"{name}: attempt {attempt + 1} of at most {1 + retries}", fg="cyan")
            code = self.engine.run(container, command, deadline or float("inf"), home / "log.txt")
            if code == 0 and (home / OUTPUT).is_file():
                return ""
            problem = f"exit code {code}" if code else f"it wrote no {OUTPUT}"
        return f"{name} failed {1 + retries} times, at last with {problem}: {_last_line(home / 'log.txt')}"

    def _end(self, name: str, state: State, problem: str) -> None:
        self.states[name] = state
        click.secho(f"{name}: {state.value} {problem}".rstrip(), fg="green" if state.good else "red")


def _artifact(source: Mapping[str, Any], artifacts: Mapping[str, Any], made: Mapping[str, Any]) -> Any:
    if "componentInputArtifact" in source:
        return artifacts[source["componentInputArtifact"]]
    output = source["taskOutputArtifact"]
    return made[output["producerTask"]][output["outputArtifactKey"]]


def _listed(artifacts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"artifacts": [described]} for name, described in artifacts.items()}


def _answered(file: Path) -> dict[str, Any]:
    return {name: listed["artifacts"][0] for name, listed in json.loads(file.read_text()).get("artifacts", {}).items()}


def _whole(file: Path) -> bool:
    """Whether the outputs that a task answered with are there, and are those."""
    if not file.is_file():
        return False
    answered = _answered(file).values()
    return all(
        (Path(made["uri"]) / artifact.MANIFEST).is_file()
        and artifact.artifact_hash(Path(made["uri"])) == made["metadata"]["sha256"]
        for made in answered
    )


def _file(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.is_file() else []
    return lines[-1] if lines else "it said nothing"


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))
