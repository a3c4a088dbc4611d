"""The compiled pipeline without a cluster: its graph is walked here, each step run by an engine.

kfp's own local runners refuse container components on the host, and report a failed container as a success.
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
from pipelines.local.step import State, Steps

POLL_SECONDS = 0.1


@dataclass
class Run:
    """One run of a compiled pipeline, in a folder of its own. Run again there, it goes on where it failed.

    Args:
        text: what ``compile_pipeline`` gave.
        folder: of the tasks; each has its outputs, ``log.txt`` and what it answered.
        engine: what runs a step.
        arguments: of the pipeline, in the place of its defaults.
        parallel: steps at once.
        sleep: between retries, seconds; unless given, until the run is stopped.
    """

    text: str
    folder: Path
    engine: Engine
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parallel: int = 1
    sleep: Callable[[float], object] | None = None

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.pipeline, *platform = yaml.safe_load_all(self.text)
        executors = platform[0]["platforms"]["kubernetes"]["deploymentSpec"]["executors"] if platform else {}
        deadlines = {name: float(pod.get("activeDeadlineSeconds", "inf")) for name, pod in executors.items()}
        containers = self.pipeline["deploymentSpec"]["executors"]
        self.stopped = Event()
        sleep = self.sleep or self.stopped.wait
        self.steps = Steps(self.folder, self.engine, containers, deadlines, sleep, self.stopped)
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
        with ThreadPoolExecutor(self.parallel) as pool, self._stopping(running):
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

    @contextmanager
    def _stopping(self, running: Mapping[Future[str], str]) -> Iterator[None]:
        """After Ctrl-C or an error end what runs, for which the pool would wait."""
        try:
            yield
        except BaseException:
            self.stopped.set()
            while wait(running, timeout=POLL_SECONDS).not_done:
                self.engine.stop()
            raise

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
        state, problem, outputs = self.steps.run(name, task, component, values, found)
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

    def _end(self, name: str, state: State, problem: str) -> None:
        self.states[name] = state
        said = problem if state is State.FAILED else ", ".join(filter(None, [f"{name}: {state.value}", problem]))
        click.secho(said, fg="green" if state.good else "red")


def _artifact(source: Mapping[str, Any], artifacts: Mapping[str, Any], made: Mapping[str, Any]) -> Any:
    if "componentInputArtifact" in source:
        return artifacts[source["componentInputArtifact"]]
    output = source["taskOutputArtifact"]
    return made[output["producerTask"]][output["outputArtifactKey"]]
