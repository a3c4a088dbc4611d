"""One step of a compiled pipeline: its input message, its attempts, and the reuse of earlier outputs."""

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


class TaskState(Enum):
    """Final state of a task."""

    SUCCEEDED = "succeeded"
    REUSED = "reused"
    FAILED = "failed"
    SKIPPED = "skipped"

    @property
    def succeeded(self) -> bool:
        """Whether the task has outputs."""
        return self in (TaskState.SUCCEEDED, TaskState.REUSED)


@dataclass(frozen=True)
class StepRunner:
    """Runs the steps of one pipeline run.

    Args:
        folder: one folder per task, with its outputs, ``log.txt`` and executor output.
        executors: compiled executors by label.
        timeouts: seconds by executor label.
        sleep: called with seconds between retries.
        stopped: if set, no further attempt starts.
    """

    folder: Path
    engine: Engine
    executors: Mapping[str, Any]
    timeouts: Mapping[str, float]
    sleep: Callable[[float], object]
    stopped: Event

    def run(
        self,
        name: str,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        parameters: Mapping[str, Any],
        inputs: Mapping[str, Any],
    ) -> tuple[TaskState, str, dict[str, Any]]:
        """Run a task, or reuse its outputs of an earlier run.

        Args:
            task, component: as compiled.
            inputs: artifacts by name.

        Returns:
            The final state, the error message ("" if none), and the output artifacts by name.
        """
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        outputs = {
            key: {"name": key, "type": output["artifactType"], "uri": str(home / key), "metadata": {}}
            for key, output in component.get("outputDefinitions", {}).get("artifacts", {}).items()
        }
        executor_input = {
            "inputs": {"parameterValues": parameters, "artifacts": _artifact_lists(inputs)},
            "outputs": {
                "artifacts": _artifact_lists(outputs),
                "parameters": {
                    key: {"outputFile": str(home / "parameters" / key)}
                    for key in component.get("outputDefinitions", {}).get("parameters", {})
                },
                "outputFile": str(home / OUTPUT),
            },
        }
        spec = self.executors[component["executorLabel"]]["container"]
        text = json.dumps(executor_input, sort_keys=True)
        # Leave out the environment (commit, servers), which no result depends on. The engine's version replaces the
        # image name, which stays the same after a new build.
        key = [executor_input, self.engine.version(spec), spec["command"], spec["args"]]
        fingerprint = sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        cached = task.get("cachingOptions", {}).get("enableCache", False)
        if cached and _read(home / FINGERPRINT) == fingerprint and _is_complete(home / OUTPUT):
            return TaskState.REUSED, "", _output_artifacts(home / OUTPUT)
        (home / OUTPUT).unlink(missing_ok=True)
        (home / FINGERPRINT).write_text(fingerprint)
        command = [part.replace("{{$}}", text) for part in [*spec["command"], *spec["args"]]]
        timeout = self.timeouts.get(component["executorLabel"], float("inf"))
        error = self._attempt(name, task, spec, command, timeout, home)
        if error:
            return TaskState.FAILED, error, {}
        return TaskState.SUCCEEDED, "", _output_artifacts(home / OUTPUT)

    def _attempt(
        self,
        name: str,
        task: Mapping[str, Any],
        spec: Mapping[str, Any],
        command: list[str],
        timeout: float,
        home: Path,
    ) -> str:
        """Run ``command`` until it succeeds or no retry is left; return the error message, "" if none."""
        policy = task.get("retryPolicy", {})
        retries, delay = policy.get("maxRetryCount", 0), _seconds(policy.get("backoffDuration", "0s"))
        for attempt in range(1 + retries):
            if attempt:
                self.sleep(delay)
                delay = min(delay * policy["backoffFactor"], _seconds(policy["backoffMaxDuration"]))
            if self.stopped.is_set():
                return f"{name} was stopped"
            log_start = _size(home / "log.txt")
            click.secho(f"{name}: attempt {attempt + 1} of at most {1 + retries}", fg="cyan")
            code = self.engine.run(spec, command, timeout, home / "log.txt")
            if code == 0 and (home / OUTPUT).is_file():
                return ""
            problem = f"exit code {code}" if code else f"no {OUTPUT}"
        return f"{name} failed {1 + retries} times, at last with {problem}: {_last_error(home / 'log.txt', log_start)}"


def _artifact_lists(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {"artifacts": [entry]} for name, entry in entries.items()}


def _output_artifacts(file: Path) -> dict[str, Any]:
    return {name: entry["artifacts"][0] for name, entry in json.loads(file.read_text()).get("artifacts", {}).items()}


def _is_complete(file: Path) -> bool:
    """Whether all outputs in the executor output ``file`` exist, unchanged."""
    return file.is_file() and all(
        (Path(output["uri"]) / artifacts.MANIFEST).is_file()
        and artifacts.artifact_hash(Path(output["uri"])) == output["metadata"]["sha256"]
        for output in _output_artifacts(file).values()
        if "sha256" in output["metadata"]  # the output page is one file, scores have none
    )


def _read(path: Path) -> str | None:
    return path.read_text() if path.is_file() else None


def _size(log: Path) -> int:
    return log.stat().st_size if log.is_file() else 0


def _last_error(log: Path, start: int) -> str:
    """Return the last ``error: ...`` after byte ``start``, which may span lines; otherwise the last line."""
    lines = log.read_bytes()[start:].decode(errors="replace").strip().splitlines() if log.is_file() else []
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] if errors else -1 :]) or "no output"


def _seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))
