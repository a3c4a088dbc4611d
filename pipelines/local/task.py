"""One task of a local run: attempts until one succeeds; kfp.local has the cache, makes messages and
reads outputs."""

import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Event
from typing import Any

import click
from google.protobuf.json_format import ParseError
from kfp.dsl import Artifact
from kfp.local.cache import LocalCache
from kfp.local.executor_input_utils import construct_executor_input, executor_input_to_dict
from kfp.local.executor_output_utils import get_outputs_for_task
from kfp.local.placeholder_utils import replace_placeholders
from kfp.pipeline_spec import pipeline_spec_pb2 as spec

from pipelines.local.engine import Engine, Pod
from runtime.process import TERMINATION_LOG

OUTPUT_FILE = "executor_output.json"
"""File that a step writes at its end, by kfp.local's name."""
KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""Exit codes of a killed process and container."""


class TaskState(StrEnum):
    """Final state of a task; ``CANCELED``: its condition does not hold, ``OMITTED``: a task that it
    needs failed."""

    COMPLETE = "COMPLETE"
    CACHED = "CACHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    OMITTED = "OMITTED"

    @property
    def failed(self) -> bool:
        """Whether the run fails with the task."""
        return self in (TaskState.FAILED, TaskState.OMITTED)


@dataclass(frozen=True)
class TaskRunner:
    """Runs the tasks of one run.

    ``folder`` has a folder per task: logs of the last run, ``attempts`` with the outputs, and links
    to the latest ones. ``containers`` and ``timeouts``, in seconds, have the labels of executors as
    keys.
    """

    folder: Path
    engine: Engine
    run_id: str
    containers: Mapping[str, Any]
    timeouts: Mapping[str, float]
    sleep: Callable[[float], object]
    stopped: Event

    def run(
        self,
        name: str,
        task: spec.PipelineTaskSpec,
        component: spec.ComponentSpec,
        arguments: dict[str, Any],
    ) -> tuple[TaskState, dict[str, Any], str]:
        """Return the state and the outputs of a task, and the error message, "" if none."""
        container = self.containers[component.executor_label]
        command = [*container["command"], *container["args"]]
        cache = LocalCache(str(self.folder / ".cache"))
        key = cache.compute_key(
            task.component_ref.name, self.engine.image(container["image"]), command, arguments
        )
        cached = cache.get(key) if task.caching_options.enable_cache else None
        state, outputs, problem = TaskState.CACHED, cached or {}, ""
        if cached is None:
            state, outputs, problem = self._attempts(name, task, component, arguments)
        if state is TaskState.COMPLETE and task.caching_options.enable_cache:
            cache.put(key, outputs)
        for output, value in outputs.items():
            if isinstance(value, Artifact):
                if not Path(
                    value.uri
                ).exists():  # metrics have no file, and kfp.local's cache wants one
                    Path(value.uri).touch()
                link = self.folder / name / output
                link.unlink(missing_ok=True)
                link.symlink_to(value.uri)
        return state, outputs, problem

    def _attempts(
        self,
        name: str,
        task: spec.PipelineTaskSpec,
        component: spec.ComponentSpec,
        arguments: dict[str, Any],
    ) -> tuple[TaskState, dict[str, Any], str]:
        policy, folder, problem = task.retry_policy, self.folder / name, ""
        for old in folder.glob("log-*.txt"):
            old.unlink()
        attempts = 1 + policy.max_retry_count
        for attempt in range(attempts):
            if attempt:
                self.sleep(policy.backoff_duration.seconds * policy.backoff_factor ** (attempt - 1))
                click.secho(f"{name}: attempt {attempt + 1} of at most {attempts}", fg="yellow")
            if self.stopped.is_set():
                return TaskState.FAILED, {}, f"{name} was stopped"
            log = folder / f"log-{attempt}.txt"
            outputs, problem = self._attempt(name, component, arguments, log)
            if not problem:
                return TaskState.COMPLETE, outputs, ""
        times = f"{attempts} attempt{'s' if attempts > 1 else ''}"
        return TaskState.FAILED, {}, f"{name} failed after {times}: {problem}: {last_error(log)}"

    def _attempt(
        self, name: str, component: spec.ComponentSpec, arguments: dict[str, Any], log: Path
    ) -> tuple[dict[str, Any], str]:
        """Run the step once in an empty folder; return its outputs, or what went wrong."""
        for failed in (self.folder / name / "attempts").glob("*"):
            if not (failed / OUTPUT_FILE).is_file():
                shutil.rmtree(failed)
        folder = self.folder / name / "attempts" / f"{self.run_id}-{log.stem.removeprefix('log-')}"
        folder.mkdir(parents=True)
        log.touch()
        container, timeout = (
            self.containers[component.executor_label],
            self.timeouts[component.executor_label],
        )
        message = construct_executor_input(
            component, arguments, str(folder), block_input_artifact=False
        )
        command = replace_placeholders(
            [*container["command"], *container["args"]],
            executor_input_to_dict(message, component),
            pipeline_resource_name=self.run_id,
            task_resource_name=name,
            pipeline_root=str(self.folder),
            unique_pipeline_id=self.run_id,
        )
        inputs = [Path(value.uri) for value in arguments.values() if isinstance(value, Artifact)]
        environment = {entry["name"]: entry["value"] for entry in container.get("env", [])}
        message_file = folder / "termination-log"
        environment |= {"KFP_RUN_ID": self.run_id, TERMINATION_LOG: str(message_file)}
        ended = self.engine.run(
            Pod(folder, inputs, container["image"], command, environment, timeout, log)
        )
        if ended.late:
            return {}, f"killed after {timeout:g} s"
        if ended.code in KILLED:
            memory = message_file.read_text() if message_file.is_file() else "memory: unknown"
            return {}, f"killed (exit code {ended.code}), mostly because memory is short; {memory}"
        if ended.code:
            return {}, f"exit code {ended.code}"
        try:
            return get_outputs_for_task(message, component), ""
        except (ValueError, ParseError) as error:
            return {}, f"the step wrote an output that Kubeflow rejects: {error}"


def last_error(log: Path) -> str:
    """Return the last ``error: ...`` of a log, which may span lines; otherwise the last line."""
    lines = log.read_bytes().decode(errors="replace").strip().splitlines()
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] if errors else -1 :]) or "no output"
