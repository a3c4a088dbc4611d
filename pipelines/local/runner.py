"""Runs of a compiled pipeline on this machine: kfp.local resolves inputs and conditions, the graph
is walked here.

The orchestrator of kfp.local 2.17 runs one task at a time, skips a condition on a named output
without an error, and gives an exit task other keys than a cluster does. Its runners reject
container components on the host, and can report a failed container as a success.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import click
import yaml
from filelock import FileLock, Timeout
from google.protobuf.json_format import ParseDict
from kfp.local.io import IOStore
from kfp.local.orchestrator.enhanced_dag_orchestrator import ConditionEvaluator
from kfp.local.orchestrator.orchestrator_utils import OrchestratorUtils
from kfp.pipeline_spec import pipeline_spec_pb2 as spec

from pipelines.local.engine import Engine
from pipelines.local.task import TaskRunner, TaskState

POLL_SECONDS = 0.1
EXIT = spec.PipelineTaskSpec.TriggerPolicy.ALL_UPSTREAM_TASKS_COMPLETED


@dataclass
class LocalRun:
    """One run of the compiled pipeline ``text``; another run in the same folder takes finished
    steps from the cache.

    ``folder`` holds a folder per task. ``parallel`` is the number of steps at once; ``sleep`` is
    called with seconds between retries, and by default waits until the run is stopped.
    """

    text: str
    folder: Path
    engine: Engine
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 1
    sleep: Callable[[float], object] | None = None
    run_id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        compiled, *platform = yaml.safe_load_all(self.text)
        self.pipeline = ParseDict(compiled, spec.PipelineSpec())
        self.stopped, self.active = Event(), list[str]()
        self.states: dict[str, TaskState] = {}
        executors = compiled["deploymentSpec"]["executors"]
        pods = (
            platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
            if platform
            else {}
        )
        self.tasks = TaskRunner(
            self.folder.resolve(),
            self.engine,
            self.run_id,
            {label: executor["container"] for label, executor in executors.items()},
            {
                label: float(pods.get(label, {}).get("activeDeadlineSeconds", "inf"))
                for label in executors
            },
            self.sleep or self.stopped.wait,
            self.stopped,
        )

    def execute(self) -> dict[str, TaskState]:
        """Run the pipeline and return the final state of each task."""
        root = self.pipeline.root
        if unknown := sorted(set(self.arguments) - set(root.input_definitions.parameters)):
            known = ", ".join(sorted(root.input_definitions.parameters))
            raise ValueError(f"the pipeline has no argument {unknown[0]!r}; it has {known}")
        with self._locked():
            self._run_graph(root, _scope(root, dict(self.arguments)))
        return self.states

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / ".lock", timeout=0):
                yield
        except Timeout as error:
            raise ValueError(
                f"another process runs in {self.folder}: wait, or choose another --folder"
            ) from error

    def _run_graph(self, graph: spec.ComponentSpec, scope: IOStore) -> str:
        """Run the tasks of a graph; return the first error message, "" if none."""
        errors: dict[str, str] = {}
        waiting = dict(graph.dag.tasks)
        running: dict[Future[str], str] = {}
        with ThreadPoolExecutor(self.parallel) as pool, self._stop_on_error():
            while waiting or running:
                for name, task in list(waiting.items()):
                    needs = task.dependent_tasks
                    if any(need in waiting or need in running.values() for need in needs):
                        continue
                    del waiting[name]
                    failed = [need for need in needs if need in errors]
                    if failed and task.trigger_policy.strategy != EXIT:
                        self._finish(name, TaskState.OMITTED, f"{failed[0]} failed")
                        errors[name] = ""
                        continue
                    running[pool.submit(self._run_task, name, task, scope)] = name
                done, _ = wait(running, return_when=FIRST_COMPLETED) if running else (set(), None)
                for future in done:
                    name = running.pop(future)
                    if error := future.result():
                        errors[name] = error
        return next((error for error in errors.values() if error), "")

    @contextmanager
    def _stop_on_error(self) -> Iterator[None]:
        """After Ctrl-C or an error, kill the running steps: the pool would wait for them."""
        try:
            yield
        except BaseException:
            self.stopped.set()
            while self.active:
                self.engine.stop()
                sleep(POLL_SECONDS)
            raise

    def _run_task(self, name: str, task: spec.PipelineTaskSpec, scope: IOStore) -> str:
        """Run one task or nested graph; return the error message, "" if none."""
        if task.WhichOneof("iterator"):
            raise ValueError(
                f"{name}: local runs support tasks, nested graphs, conditions and exit tasks, "
                "no loops"
            )
        component = self.pipeline.components[task.component_ref.name]
        arguments = OrchestratorUtils.make_task_arguments(task.inputs, scope)
        for key, source in task.inputs.parameters.items():
            if source.HasField("task_final_status"):
                arguments[key] = self._status(source.task_final_status.producer_task, scope)
        if component.HasField("dag"):
            inner, error = _scope(component, arguments, scope), ""
            if ConditionEvaluator.evaluate_condition(task.trigger_policy.condition, inner):
                error = self._run_graph(component, inner)
            else:
                self._finish(task.task_info.name, TaskState.CANCELED)
            scope.put_task_status(name, TaskState.FAILED if error else TaskState.COMPLETE)
            return error
        start = monotonic()
        self.active.append(name)  # here: Ctrl-C can come before _run_graph has recorded the future
        try:
            state, outputs, error = self.tasks.run(name, task, component, arguments)
        finally:
            self.active.remove(name)
        for key, value in outputs.items():
            scope.put_task_output(name, key, value)
        seconds = f"{monotonic() - start:.0f} s" if state is TaskState.COMPLETE else ""
        self._finish(name, state, error or seconds)
        return error

    def _status(self, producer: str, scope: IOStore) -> dict[str, Any]:
        """Return an exit task's input as the backend makes it (kubeflow/pipelines 2.17,
        driver/resolve.go:471)."""
        job = f"{self.pipeline.pipeline_info.name}-{self.run_id[:5]}"
        state = scope.get_task_status(producer)
        return {
            "state": state,
            "error": {},
            "pipelineJobResourceName": job,
            "pipelineTaskName": producer,
        }

    def _finish(self, name: str, state: TaskState, message: str = "") -> None:
        self.states[name] = state
        line = (
            message
            if state is TaskState.FAILED
            else ", ".join(filter(None, [f"{name}: {state.lower()}", message]))
        )
        click.secho(line, fg="red" if state.failed else "green")


def _scope(
    component: spec.ComponentSpec, arguments: dict[str, Any], parent: IOStore | None = None
) -> IOStore:
    """Return the store of a graph with its inputs."""
    scope = IOStore(parent)
    for name, value in OrchestratorUtils.join_user_inputs_and_defaults(
        arguments, component.input_definitions
    ).items():
        scope.put_parent_input(name, value)
    return scope
