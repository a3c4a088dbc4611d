"""Runs of a compiled pipeline on this machine: the graph is walked here, each step is run by an engine.

The local runners of kfp reject container components on the host, and report a failed container as a success.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import click
import yaml

from pipelines.local.engines import Engine
from pipelines.local.step import StepRunner, TaskState

POLL_SECONDS = 0.1


@dataclass
class LocalRun:
    """One run of a compiled pipeline in its own folder. A second run in the same folder continues the first.

    Args:
        text: the compiled pipeline.
        folder: one folder per task, with its outputs, ``log.txt`` and executor output.
        arguments: replace defaults of the pipeline.
        parallel: steps at once.
        sleep: called with seconds between retries; by default it waits until the run is stopped.
    """

    text: str
    folder: Path
    engine: Engine
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 1
    sleep: Callable[[float], object] | None = None

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.pipeline, *platform = yaml.load_all(self.text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        pods = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platform else {}
        timeouts = {label: float(pod.get("activeDeadlineSeconds", "inf")) for label, pod in pods.items()}
        executors = self.pipeline["deploymentSpec"]["executors"]
        self.stopped = Event()
        sleep = self.sleep or self.stopped.wait
        self.steps = StepRunner(self.folder, self.engine, executors, timeouts, sleep, self.stopped)
        self.states: dict[str, TaskState] = {}

    def execute(self) -> dict[str, TaskState]:
        """Run the pipeline and return the final state of each task.

        Raises:
            ValueError: an argument is unknown, or the graph has elements that only a cluster can run.
        """
        known = self.pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
        unknown = sorted(set(self.arguments) - set(known))
        if unknown:
            raise ValueError(f"the pipeline has no argument {unknown[0]!r}; it has {', '.join(sorted(known))}")
        defaults = {name: definition.get("defaultValue") for name, definition in known.items()}
        self._run_graph(self.pipeline["root"]["dag"], {**defaults, **self.arguments}, {})
        return self.states

    def _run_graph(self, dag: Mapping[str, Any], parameters: Mapping[str, Any], artifacts: Mapping[str, Any]) -> str:
        """Run the tasks of a graph; return the first error message, "" if none."""
        outputs: dict[str, dict[str, Any]] = {}
        errors: dict[str, str] = {}
        waiting = dict(dag["tasks"])
        running: dict[Future[str], str] = {}
        with ThreadPoolExecutor(self.parallel) as pool, self._stop_on_error(running):
            while waiting or running:
                for name, task in list(waiting.items()):
                    needs = task.get("dependentTasks", [])
                    if any(need in waiting or need in running.values() for need in needs):
                        continue
                    del waiting[name]
                    is_exit_task = task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
                    failed = [need for need in needs if need in errors]
                    if failed and not is_exit_task:
                        self._finish(name, TaskState.SKIPPED, f"{failed[0]} failed")
                        errors[name] = ""
                        continue
                    running[pool.submit(self._run_task, name, task, parameters, artifacts, outputs, errors)] = name
                done, _ = wait(running, return_when=FIRST_COMPLETED) if running else (set(), None)
                for future in done:
                    name = running.pop(future)
                    error = future.result()
                    if error:
                        errors[name] = error
        return next((error for error in errors.values() if error), "")

    @contextmanager
    def _stop_on_error(self, running: Mapping[Future[str], str]) -> Iterator[None]:
        """After Ctrl-C or an error, kill the running steps: the pool would wait for them."""
        try:
            yield
        except BaseException:
            self.stopped.set()
            while wait(running, timeout=POLL_SECONDS).not_done:
                self.engine.stop()
            raise

    def _run_task(
        self,
        name: str,
        task: Mapping[str, Any],
        parameters: Mapping[str, Any],
        artifacts: Mapping[str, Any],
        outputs: dict[str, dict[str, Any]],
        errors: Mapping[str, str],
    ) -> str:
        """Run one task or nested graph; return the error message, "" if none."""
        loops = {"parameterIterator", "artifactIterator", "iteratorPolicy"} & set(task)
        if loops or "condition" in task.get("triggerPolicy", {}):
            raise ValueError(f"{name}: local runs support tasks, nested graphs and exit tasks, no loops or conditions")
        sources = task.get("inputs", {})
        task_parameters = {
            key: self._parameter(source, parameters, errors) for key, source in sources.get("parameters", {}).items()
        }
        inputs = {
            key: _input_artifact(source, artifacts, outputs) for key, source in sources.get("artifacts", {}).items()
        }
        component = self.pipeline["components"][task["componentRef"]["name"]]
        if "dag" in component:
            return self._run_graph(component["dag"], task_parameters, inputs)
        state, error, outputs[name] = self.steps.run(name, task, component, task_parameters, inputs)
        self._finish(name, state, error)
        return error

    def _parameter(self, source: Mapping[str, Any], parameters: Mapping[str, Any], errors: Mapping[str, str]) -> Any:
        if "runtimeValue" in source:
            return source["runtimeValue"]["constant"]
        if "componentInputParameter" in source:
            return parameters[source["componentInputParameter"]]
        if "taskFinalStatus" in source:
            producer = source["taskFinalStatus"]["producerTask"]
            status: dict[str, Any] = {
                "state": "FAILED" if producer in errors else "SUCCEEDED",
                "pipelineJobResourceName": self.folder.name,
                "pipelineTaskName": producer,
            }
            return status | ({"error": {"message": errors[producer]}} if producer in errors else {})
        raise ValueError(f"local runs do not support a parameter from {sorted(source)}")

    def _finish(self, name: str, state: TaskState, message: str) -> None:
        self.states[name] = state
        line = message if state is TaskState.FAILED else ", ".join(filter(None, [f"{name}: {state.value}", message]))
        click.secho(line, fg="green" if state.succeeded else "red")


def _input_artifact(source: Mapping[str, Any], artifacts: Mapping[str, Any], outputs: Mapping[str, Any]) -> Any:
    if "componentInputArtifact" in source:
        return artifacts[source["componentInputArtifact"]]
    output = source["taskOutputArtifact"]
    return outputs[output["producerTask"]][output["outputArtifactKey"]]
