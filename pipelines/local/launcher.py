"""Kubeflow's launcher on this machine (kubeflow/pipelines 2.17, backend/src/v2/component/launcher_v2.go)."""

import json
import shutil
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from pipelines.local.driver import EXECUTOR_LOGS, Decision, Graph
from pipelines.local.engine import Engine, Exit, Pod
from pipelines.local.metadata import MetadataStore, State
from pipelines.local.retries import Phase
from pipelines.local.store import ObjectStore
from runtime.kubeflow.executor import local_path

VOLUMES = (".cache", ".config", ".local", "gcs", "minio", "s3", "tmp")
"""Folders of a pod that any user may write: the volumes of argocompiler/container.go:472-514, and /tmp of the image."""


@dataclass(frozen=True)
class Launcher:
    """Runs attempts of tasks, each in a pod of its own below ``folder``."""

    store: ObjectStore
    metadata: MetadataStore
    engine: Engine
    folder: Path

    def attempt(
        self,
        decision: Decision,
        graph: Graph,
        component: Mapping[str, Any],
        container: Mapping[str, Any],
        environment: Mapping[str, str],
        timeout: float,
        log: Path,
        index: int,
    ) -> tuple[Phase, str]:
        """Run the container once, for at most ``timeout`` seconds, in an empty file system with the task's inputs.

        Return the phase of the pod and what went wrong, "" if nothing. ``index`` counts retries from 0.
        """
        pod = self.folder / f"{decision.execution.task}-{uuid4().hex[:8]}"
        message = _qualified(decision.message, self.engine.root(pod), index)
        try:
            self._prepare(pod, decision.message)
            log.touch()
            command = _compiled(container, message)
            variables = {entry["name"]: entry["value"] for entry in container.get("env", [])} | dict(environment)
            ended = self.engine.run(Pod(pod, container["image"], command, variables, timeout, log))
            if ended.reason == "deleted":
                return "Error", "pod deleted"
            if ended.reason == "deadline":
                # The launcher ends with its pod, so the execution stays RUNNING.
                return "Failed", f"DeadlineExceeded after {timeout:g} s"
            return self._publish(decision, graph, component, message, pod, ended, log)
        finally:
            shutil.rmtree(pod, ignore_errors=True)

    def _prepare(self, pod: Path, message: Mapping[str, Any]) -> None:
        """Create the volumes of the pod, download the inputs, create the parents of the outputs (line 927, 1280)."""
        for volume in VOLUMES:
            (pod / volume).mkdir(parents=True)
        for entry in message["inputs"].get("artifacts", {}).values():
            for artifact in entry["artifacts"]:
                self.store.download(artifact["uri"], _in_pod(pod, artifact["uri"]))
        for entry in message["outputs"]["artifacts"].values():
            _in_pod(pod, entry["artifacts"][0]["uri"]).parent.mkdir(parents=True, exist_ok=True)
        for entry in message["outputs"].get("parameters", {}).values():
            _in_pod(pod, entry["outputFile"]).parent.mkdir(parents=True, exist_ok=True)
        self.engine.own(pod)

    def _publish(
        self,
        decision: Decision,
        graph: Graph,
        component: Mapping[str, Any],
        message: Mapping[str, Any],
        pod: Path,
        ended: Exit,
        log: Path,
    ) -> tuple[Phase, str]:
        """Upload outputs and publish the execution: all outputs after a success, else only the log (line 448-457)."""
        problem = f"exit code {ended.code}" if ended.code else ""
        state, parameters, artifacts = State.FAILED, dict[str, Any](), dict[str, int]()
        entries = {name: entry["artifacts"][0] for name, entry in message["outputs"]["artifacts"].items()}
        logs = entries.pop(EXECUTOR_LOGS)
        if not problem:
            try:
                output = _executor_output(_in_pod(pod, decision.message["outputs"]["outputFile"]))
                parameters = self._parameters(decision, component, output, pod)
                for name, entry in entries.items():
                    artifacts[name] = self._upload(name, _merged(entry, output, name), pod)
                state = State.COMPLETE
            except (ValueError, OSError, json_format.ParseError) as error:
                problem, parameters, artifacts = f"launcher: {error}", {}, {}
        self.store.upload(log, logs["uri"])
        artifacts[EXECUTOR_LOGS] = self._record(EXECUTOR_LOGS, logs)
        self.metadata.publish(decision.execution, state, parameters, artifacts)
        if state is State.COMPLETE and decision.execution.fingerprint:
            self.metadata.add_to_cache(decision.execution)
        self.metadata.update_graph(graph.execution)
        return ("Failed", problem) if problem else ("Succeeded", "")

    def _parameters(
        self, decision: Decision, component: Mapping[str, Any], output: Mapping[str, Any], pod: Path
    ) -> dict[str, Any]:
        """Return the output parameters, from the ExecutorOutput or else from their files (line 484-515)."""
        values = dict(output.get("parameterValues", {}))
        definitions = component.get("outputDefinitions", {}).get("parameters", {})
        for name, entry in decision.message["outputs"].get("parameters", {}).items():
            if name not in values:
                text = _in_pod(pod, entry["outputFile"]).read_text()
                values[name] = text if definitions[name]["parameterType"] == "STRING" else json.loads(text)
        return values

    def _upload(self, name: str, entry: Mapping[str, Any], pod: Path) -> int:
        """Upload an output and record it; a component may leave it out (line 825)."""
        source = _in_pod(pod, entry["uri"])
        if source.exists():
            self.store.upload(source, entry["uri"])
        return self._record(name, entry)

    def _record(self, name: str, entry: Mapping[str, Any]) -> int:
        return self.metadata.record_artifact(entry["uri"], {**entry.get("metadata", {}), "display_name": name})


def _in_pod(pod: Path, uri: str) -> Path:
    """Path on this machine of a file in the pod, given by its URI or by its absolute path in the pod."""
    return pod / PurePosixPath(local_path(uri)).relative_to("/")


def _qualified(message: Mapping[str, Any], root: Path, index: int) -> dict[str, Any]:
    """Return the message of one attempt: numbered logs (line 538), and paths as the step sees them (line 1255)."""
    qualified: dict[str, Any] = deepcopy(dict(message))
    outputs = qualified["outputs"]
    logs = outputs["artifacts"][EXECUTOR_LOGS]["artifacts"][0]
    logs["uri"] += f"-{index}"
    outputs["outputFile"] = str(_in_pod(root, outputs["outputFile"]))
    for entry in outputs.get("parameters", {}).values():
        entry["outputFile"] = str(_in_pod(root, entry["outputFile"]))
    if root != Path("/"):
        for entry in (*qualified["inputs"].get("artifacts", {}).values(), *outputs["artifacts"].values()):
            for artifact in entry["artifacts"]:
                artifact["customPath"] = str(_in_pod(root, artifact["uri"]))
    return qualified


def _compiled(container: Mapping[str, Any], message: Mapping[str, Any]) -> list[str]:
    """Return the command with the message in place of ``{{$}}`` (line 1051)."""
    parts = [*container.get("command", []), *container.get("args", [])]
    other = [part for part in parts if "{{$." in part]
    if other:
        raise ValueError(f"local runs support only the placeholder {{{{$}}}}, got {other[0]!r}")
    return [part.replace("{{$}}", json.dumps(message, sort_keys=True)) for part in parts]


def _merged(entry: Mapping[str, Any], output: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return an artifact with the URI and the metadata that the step gave it (line 1188)."""
    given = output.get("artifacts", {}).get(name, {}).get("artifacts", [{}])[0]
    return {**entry, "uri": given.get("uri") or entry["uri"], "metadata": given.get("metadata", {})}


def _executor_output(file: Path) -> dict[str, Any]:
    """Return the ExecutorOutput, empty if there is no file; as strict as protojson (line 1208)."""
    if not file.is_file():
        return {}
    values: dict[str, Any] = json.loads(file.read_text(), parse_constant=_reject)
    json_format.ParseDict(values, pipeline_spec_pb2.ExecutorOutput())
    return values


def _reject(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
