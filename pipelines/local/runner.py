"""Runs of a compiled pipeline on this machine: the graph is walked here as Argo does, each task by Kubeflow's rules.

The local runners of kfp reject container components on the host, and report a failed container as a success.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import click
import yaml
from filelock import FileLock, Timeout

from pipelines.local.driver import Driver, Graph, RunInfo
from pipelines.local.engine import Engine
from pipelines.local.launcher import Launcher
from pipelines.local.metadata import MetadataStore, State
from pipelines.local.store import ObjectStore
from pipelines.local.task import TaskRunner
from runtime.parameters.values import LOADER

POLL_SECONDS = 0.1


@dataclass
class LocalRun:
    """One run of the compiled pipeline ``text``; another run in the same folder takes finished steps from the cache.

    ``folder`` holds the object store, the metadata and a folder per task. ``parallel`` is the number of steps at once;
    ``sleep`` is called with seconds between retries, and by default waits until the run is stopped.
    """

    text: str
    folder: Path
    engine: Engine
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 1
    sleep: Callable[[float], object] | None = None
    run_id: str = field(default_factory=lambda: str(uuid4()))

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.pipeline, *platform = yaml.load_all(self.text, Loader=LOADER)
        self.pods = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platform else {}
        self.stopped = Event()
        self.states: dict[str, State] = {}

    def execute(self) -> dict[str, State]:
        """Run the pipeline and return the final state of each task."""
        known = self.pipeline["root"].get("inputDefinitions", {}).get("parameters", {})
        unknown = sorted(set(self.arguments) - set(known))
        if unknown:
            raise ValueError(f"the pipeline has no argument {unknown[0]!r}; it has {', '.join(sorted(known))}")
        defaults = {name: definition.get("defaultValue") for name, definition in known.items()}
        with self._locked():
            self._prepare()
            root = self.driver.metadata.create(self.run_id, 0, "root")
            self._run_graph(self.pipeline["root"]["dag"], Graph(root, {**defaults, **self.arguments}, {}))
        return self.states

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / ".lock", timeout=0):
                yield
        except Timeout as error:
            raise ValueError(
                f"another process runs a pipeline in {self.folder}: wait for it, or choose another --folder"
            ) from error

    def _prepare(self) -> None:
        pods, name = self.folder / "pods", self.pipeline["pipelineInfo"]["name"]
        shutil.rmtree(pods, ignore_errors=True)
        metadata, store = MetadataStore(self.folder / "metadata.json"), ObjectStore(self.folder / "objects")
        self.driver = Driver(metadata, RunInfo(self.run_id, f"{name}-{self.run_id[:5]}", name))
        launcher = Launcher(store, metadata, self.engine, pods)
        executors = self.pipeline["deploymentSpec"]["executors"]
        sleep = self.sleep or self.stopped.wait
        self.tasks = TaskRunner(self.folder, self.driver, launcher, executors, self.pods, sleep, self.stopped)

    def _run_graph(self, dag: Mapping[str, Any], graph: Graph) -> str:
        """Run the tasks of a graph; return the first error message, "" if none."""
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
                        self._finish(name, State.OMITTED, f"{failed[0]} failed")
                        errors[name] = ""
                        continue
                    running[pool.submit(self._run_task, name, task, graph)] = name
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

    def _run_task(self, name: str, task: Mapping[str, Any], graph: Graph) -> str:
        """Run one task or nested graph; return the error message, "" if none."""
        loops = {"parameterIterator", "artifactIterator", "iteratorPolicy"} & set(task)
        if loops:
            raise ValueError(f"{name}: local runs support tasks, nested graphs, conditions and exit tasks, no loops")
        component = self.pipeline["components"][task["componentRef"]["name"]]
        if "dag" in component:
            reason = self.driver.skip(name, task, component, graph)
            if reason:
                self._finish(task["taskInfo"]["name"], State.CANCELED, reason)
                error = ""
            else:
                error = self._run_graph(component["dag"], self.driver.graph(name, task, component, graph))
            if "condition" in task.get("triggerPolicy", {}):
                self.driver.metadata.update_graph(graph.execution)
            return error
        state, error = self.tasks.run(name, task, component, graph)
        self._finish(name, state, error)
        return error

    def _finish(self, name: str, state: State, message: str) -> None:
        self.states[name] = state
        line = message if state is State.FAILED else ", ".join(filter(None, [f"{name}: {state.lower()}", message]))
        click.secho(line, fg="red" if state.failed else "green")
