"""One step of a compiled pipeline: its message, its attempts, and whether what it made before still holds."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import click

from pipelines.local.engines import Engine
from runtime import artifacts

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


@dataclass(frozen=True)
class Steps:
    """What runs the steps of one run.

    Args:
        folder: of the tasks; each has its outputs, ``log.txt`` and what it answered.
        engine: what runs a step.
        executors: the containers, as compiled.
        deadlines: of executors, seconds.
        sleep: between retries, seconds.
        stopped: set, nothing more is started.
    """

    folder: Path
    engine: Engine
    executors: Mapping[str, Any]
    deadlines: Mapping[str, float]
    sleep: Callable[[float], object]
    stopped: Event

    def run(
        self,
        name: str,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        values: Mapping[str, Any],
        inputs: Mapping[str, Any],
    ) -> tuple[State, str, dict[str, Any]]:
        """Run a task, or take what it made before.

        Args:
            name, task, component: of the task, as compiled.
            values: its parameters.
            inputs: its artifacts.

        Returns:
            How it ended, what went wrong, and its outputs by their names.
        """
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
        container = self.executors[component["executorLabel"]]["container"]
        text = json.dumps(message, sort_keys=True)
        # No environment: it names the commit and the servers, of which no result is made. The version says more of the
        # code than the image's name, under which another may have been built.
        made_by = [message, self.engine.version(container), container["command"], container["args"]]
        fingerprint = sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
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
            if self.stopped.is_set():
                return f"{name} was stopped"
            began = _size(home / "log.txt")
            click.secho(f"{name}: attempt {attempt + 1} of at most {1 + retries}", fg="cyan")
            code = self.engine.run(container, command, deadline or float("inf"), home / "log.txt")
            if code == 0 and (home / OUTPUT).is_file():
                return ""
            problem = f"exit code {code}" if code else f"it wrote no {OUTPUT}"
        return f"{name} failed {1 + retries} times, at last with {problem}: {_last_words(home / 'log.txt', began)}"


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
        (Path(made["uri"]) / artifacts.MANIFEST).is_file()
        and artifacts.artifact_hash(Path(made["uri"])) == made["metadata"]["sha256"]
        for made in answered
    )


def _file(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def _size(log: Path) -> int:
    return log.stat().st_size if log.is_file() else 0


def _last_words(log: Path, began: int) -> str:
    """The error that a stage ended with, which may take several lines; or else the last line."""
    lines = log.read_bytes()[began:].decode(errors="replace").strip().splitlines() if log.is_file() else []
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] if errors else -1 :]) or "it said nothing"


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))
