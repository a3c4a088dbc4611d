"""Executions, artifacts and cache entries of local runs, as ML Metadata and the task store of Kubeflow 2.17 keep them.

``client.go`` is backend/src/v2/metadata/client.go of kubeflow/pipelines.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any

from runtime.artifacts import write_json


class State(StrEnum):
    """State of an execution in ML Metadata; ``OMITTED`` is Argo's phase of a task that never starts."""

    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    CACHED = "CACHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    OMITTED = "OMITTED"

    @property
    def succeeded(self) -> bool:
        """Whether the task has outputs."""
        return self in (State.COMPLETE, State.CACHED)

    @property
    def failed(self) -> bool:
        """Whether the run fails with the task."""
        return self in (State.FAILED, State.OMITTED)


@dataclass
class Execution:
    """One task or nested graph of one run; ``artifacts`` are ids, ``fingerprint`` is the cache key, "" without caching.

    ``parent`` is the id of the graph's execution, 0 for the root graph, which also has 0 ``total_tasks``.
    """

    id: int
    run_id: str
    parent: int
    task: str
    state: State = State.RUNNING
    total_tasks: int = 0
    fingerprint: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, int] = field(default_factory=dict)


class MetadataStore:
    """Store in one JSON file; ids count from 1."""

    def __init__(self, file: Path) -> None:
        self._file, self._lock = file, Lock()
        saved = json.loads(file.read_text()) if file.is_file() else {"executions": [], "artifacts": [], "cache": {}}
        self._executions = [Execution(**{**entry, "state": State(entry["state"])}) for entry in saved["executions"]]
        self._artifacts: list[dict[str, Any]] = saved["artifacts"]
        self._cache: dict[str, int] = saved["cache"]

    def create(self, run_id: str, parent: int, task: str, *, total_tasks: int = 0, fingerprint: str = "") -> Execution:
        """Add an execution; it is RUNNING from the start (client.go:659)."""
        with self._lock:
            execution = Execution(
                len(self._executions) + 1, run_id, parent, task, State.RUNNING, total_tasks, fingerprint
            )
            self._executions.append(execution)
            self._save()
        return execution

    def record_artifact(self, uri: str, metadata: Mapping[str, Any]) -> int:
        """Add an artifact and return its id."""
        with self._lock:
            self._artifacts.append({"uri": uri, "metadata": dict(metadata)})
            self._save()
            return len(self._artifacts)

    def runtime_artifact(self, artifact: int) -> dict[str, Any]:
        """Return an artifact as the driver passes it to a task: its name is its id (converter.go:187)."""
        return {"name": str(artifact), **self._artifacts[artifact - 1]}

    def publish(
        self,
        execution: Execution,
        state: State,
        parameters: Mapping[str, Any] | None = None,
        artifacts: Mapping[str, int] | None = None,
    ) -> None:
        """Set the state and the outputs of an execution (client.go:558)."""
        with self._lock:
            execution.state = state
            execution.parameters |= parameters or {}
            execution.artifacts |= artifacts or {}
            self._save()

    def update_graph(self, graph: Execution) -> None:
        """Derive the state of a nested graph from its tasks, after a task or a condition (client.go:800-878).

        A graph whose last tasks are taken from the cache, or whose last pod is killed, keeps its former state.
        """
        with self._lock:
            states = [entry.state for entry in self._executions if entry.parent == graph.id]
            if not graph.total_tasks:
                return
            if sum(state.succeeded or state is State.CANCELED for state in states) == graph.total_tasks:
                graph.state = State.COMPLETE
            elif State.FAILED in states:
                graph.state = State.FAILED
            self._save()

    def add_to_cache(self, execution: Execution) -> None:
        """Let later tasks with the same fingerprint reuse the outputs of ``execution``."""
        with self._lock:
            self._cache[execution.fingerprint] = execution.id
            self._save()

    def cached(self, fingerprint: str) -> Execution | None:
        """Return the latest execution with this fingerprint that ended well."""
        found = self._cache.get(fingerprint)
        return self._executions[found - 1] if found else None

    def executions(self, run_id: str) -> Iterable[Execution]:
        """Return the executions of a run in the order of their start."""
        return [entry for entry in self._executions if entry.run_id == run_id]

    def _save(self) -> None:
        executions = [asdict(entry) for entry in self._executions]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._file, {"executions": executions, "artifacts": self._artifacts, "cache": self._cache})
