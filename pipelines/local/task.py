"""One task of a local run: the driver, then attempts by the launcher until Argo's controller would stop."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import click

from pipelines.local.driver import Decision, Driver, Graph
from pipelines.local.launcher import Launcher
from pipelines.local.metadata import State
from pipelines.local.retries import RetryStrategy


@dataclass(frozen=True)
class TaskRunner:
    """Runs the tasks of one run; ``folder`` has a folder per task, with a log per attempt and links to the outputs."""

    folder: Path
    driver: Driver
    launcher: Launcher
    executors: Mapping[str, Any]
    pods: Mapping[str, Any]
    sleep: Callable[[float], object]
    stopped: Event

    def run(self, name: str, task: Mapping[str, Any], component: Mapping[str, Any], graph: Graph) -> tuple[State, str]:
        """Run a task, or take its outputs from the cache; return its state and the error message, "" if none."""
        pod = self.pods.get(component["executorLabel"], {})
        container = self.executors[component["executorLabel"]]["container"]
        keyed = {
            **container,
            "image": self.launcher.engine.image(container["image"]),
            "pvcNames": [json.dumps(mount, sort_keys=True) for mount in pod.get("pvcMount", [])],
        }
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        decision = self.driver.container(name, task, component, keyed, graph)
        if decision.cached:
            self._link_outputs(decision, component)
            return State.CACHED, ""
        problem = self._attempts(decision, task, component, container, pod, graph)
        if problem:
            return State.FAILED, problem
        self._link_outputs(decision, component)
        return State.COMPLETE, ""

    def _attempts(
        self,
        decision: Decision,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        container: Mapping[str, Any],
        pod: Mapping[str, Any],
        graph: Graph,
    ) -> str:
        """Run attempts until one succeeds or Argo would give up; return the error message, "" if none."""
        name = decision.execution.task
        strategy = RetryStrategy.parse(task.get("retryPolicy", {}))
        limit, start, attempt = float(pod.get("activeDeadlineSeconds", "inf")), time.monotonic(), 0
        for old in (self.folder / name).glob("log-*.txt"):
            old.unlink()
        while True:
            if self.stopped.is_set():
                return f"{name} was stopped"
            click.secho(f"{name}: attempt {attempt + 1} of at most {1 + strategy.limit}", fg="cyan")
            timeout = min(limit, strategy.deadline(start) - time.monotonic()) if attempt else limit
            log = self.folder / name / f"log-{attempt}.txt"
            variables = self._variables(pod) | ({"KFP_RETRY_INDEX": str(attempt)} if strategy.limit else {})
            phase, problem = self.launcher.attempt(
                decision, graph, component, container, variables, timeout, log, attempt
            )
            if phase == "Succeeded":
                return ""
            attempt += 1
            delay, reason = strategy.delay(attempt, phase, start, time.monotonic())
            if reason:
                times = f"failed after {attempt} attempt{'s' if attempt > 1 else ''}, {reason}"
                return f"{name} {times}: {problem}: {last_error(log)}"
            self.sleep(delay)

    def _variables(self, pod: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables that Kubernetes sets from fields of the pod."""
        name, uid = f"{self.driver.run.name}-{uuid4().hex[:8]}", str(uuid4())
        fields = {
            "metadata.name": name,
            "metadata.uid": uid,
            # Label of every pod of a run (apiserver/template/v2_template.go:427).
            "metadata.labels['pipeline/runid']": self.driver.run.id,
        }
        variables = {"KFP_POD_NAME": name, "KFP_POD_UID": uid}
        for entry in pod.get("fieldPathAsEnv", []):
            if entry["fieldPath"] not in fields:
                raise ValueError(f"local runs have no field {entry['fieldPath']!r} for the variable {entry['name']}")
            variables[entry["name"]] = fields[entry["fieldPath"]]
        return variables

    def _link_outputs(self, decision: Decision, component: Mapping[str, Any]) -> None:
        for name in component.get("outputDefinitions", {}).get("artifacts", {}):
            uri = self.launcher.metadata.runtime_artifact(decision.execution.artifacts[name])["uri"]
            link = self.folder / decision.execution.task / name
            link.unlink(missing_ok=True)
            link.symlink_to(self.launcher.store.path(uri))


def last_error(log: Path) -> str:
    """Return the last ``error: ...`` of a log, which may span lines; otherwise the last line."""
    lines = log.read_bytes().decode(errors="replace").strip().splitlines() if log.is_file() else []
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] if errors else -1 :]) or "no output"
