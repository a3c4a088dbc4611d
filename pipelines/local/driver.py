"""Kubeflow's driver on this machine (kubeflow/pipelines 2.17, folder backend/src/v2/driver)."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from uuid import uuid4

from pipelines.local.metadata import Execution, MetadataStore, State
from pipelines.local.store import BUCKET

EXECUTOR_LOGS = "executor-logs"
PARAMETERS_FOLDER = "/tmp/kfp/outputs"
CONDITION = re.compile(r"inputs\.parameter_values\['([^']+)'\] == '([^']*)'")
"""Condition of a nested graph: a parameter equals a text."""


@dataclass(frozen=True)
class RunInfo:
    """Identity of one run: Kubeflow's id, the workflow's name and the pipeline's name."""

    id: str
    name: str
    pipeline: str


@dataclass
class Graph:
    """One running graph: its inputs, with artifacts by id, and the executions that have started, by task name."""

    execution: Execution
    parameters: Mapping[str, Any]
    artifacts: Mapping[str, int]
    tasks: dict[str, Execution] = field(default_factory=dict)


@dataclass(frozen=True)
class Decision:
    """ExecutorInput of one task, and whether the outputs of an earlier execution replace its run."""

    execution: Execution
    message: dict[str, Any]
    cached: bool


@dataclass(frozen=True)
class Driver:
    """Prepares the tasks of one run."""

    metadata: MetadataStore
    run: RunInfo

    def container(
        self,
        name: str,
        task: Mapping[str, Any],
        component: Mapping[str, Any],
        container: Mapping[str, Any],
        graph: Graph,
    ) -> Decision:
        """Resolve the inputs of a compiled task, or take its outputs from the cache (container.go:47-343).

        ``container`` has the image as in the cache key, and the names of mounted claims in ``pvcNames``.
        """
        inputs, outputs = self.resolve(task, component, graph), self._provision(name, component)
        fingerprint, hit = "", None
        caching = task.get("cachingOptions", {})
        if caching.get("enableCache", False):
            fingerprint = _fingerprint(task, component, container, inputs, outputs)
            hit = self.metadata.cached(fingerprint)
        execution = self.metadata.create(self.run.id, graph.execution.id, name, fingerprint=fingerprint)
        graph.tasks[name] = execution
        if hit:
            reused = {key: hit.artifacts[key] for key in outputs["artifacts"]}  # cache.go:48: each one must be there
            self.metadata.publish(execution, State.CACHED, hit.parameters, reused)
        return Decision(execution, {"inputs": inputs, "outputs": outputs}, cached=hit is not None)

    def graph(self, name: str, task: Mapping[str, Any], component: Mapping[str, Any], parent: Graph) -> Graph:
        """Start a nested graph (dag.go)."""
        inputs = self.resolve(task, component, parent)
        tasks = component["dag"]["tasks"]
        execution = self.metadata.create(self.run.id, parent.execution.id, name, total_tasks=len(tasks))
        parent.tasks[name] = execution
        ids = {key: int(entry["artifacts"][0]["name"]) for key, entry in inputs.get("artifacts", {}).items()}
        return Graph(execution, inputs.get("parameterValues", {}), ids)

    def skip(self, name: str, task: Mapping[str, Any], component: Mapping[str, Any], parent: Graph) -> str:
        """Cancel a nested graph whose condition does not hold, and return the condition; "" if it runs (dag.go)."""
        condition = str(task.get("triggerPolicy", {}).get("condition", ""))
        if not condition:
            return ""
        found = CONDITION.fullmatch(condition)
        if found is None:
            raise ValueError(f"{name}: local runs support no condition but the equality of a parameter: {condition}")
        if self.resolve(task, component, parent)["parameterValues"][found[1]] == found[2]:
            return ""
        execution = self.metadata.create(self.run.id, parent.execution.id, name)
        parent.tasks[name] = execution
        self.metadata.publish(execution, State.CANCELED)
        return f"{found[1].removeprefix('pipelinechannel--')} is not {found[2]}"

    def resolve(self, task: Mapping[str, Any], component: Mapping[str, Any], graph: Graph) -> dict[str, Any]:
        """Return the inputs of a task (resolve.go)."""
        types = component.get("inputDefinitions", {}).get("parameters", {})
        sources = task.get("inputs", {})
        values = {
            key: _converted(self._parameter(source, task, graph), types.get(key, {}).get("parameterType"))
            for key, source in sources.get("parameters", {}).items()
        }
        for key, definition in types.items():  # the launcher adds defaults (launcher_v2.go:1309)
            if key not in values and "defaultValue" in definition:
                values[key] = definition["defaultValue"]
        artifacts = {
            key: {"artifacts": [self.metadata.runtime_artifact(_artifact(source, graph))]}
            for key, source in sources.get("artifacts", {}).items()
        }
        return {key: value for key, value in (("parameterValues", values), ("artifacts", artifacts)) if value}

    def _parameter(self, source: Mapping[str, Any], task: Mapping[str, Any], graph: Graph) -> Any:
        if "runtimeValue" in source:
            return self._constant(source["runtimeValue"]["constant"])
        if "componentInputParameter" in source:
            return graph.parameters[source["componentInputParameter"]]
        if "taskOutputParameter" in source:
            output = source["taskOutputParameter"]
            return graph.tasks[output["producerTask"]].parameters[output["outputParameterKey"]]
        if "taskFinalStatus" in source:
            producer = graph.tasks[task["dependentTasks"][0]]
            # resolve.go:471-477: the state of ML Metadata, and never an error message.
            return {
                "state": str(producer.state),
                "error": {},
                "pipelineJobResourceName": self.run.name,
                "pipelineTaskName": producer.task,
            }
        raise ValueError(f"local runs do not support a parameter from {sorted(source)}")

    def _constant(self, value: Any) -> Any:
        """Replace a constant that is one placeholder (resolve.go:435-452)."""
        placeholders = {
            "{{$.pipeline_job_uuid}}": self.run.id,
            "{{$.pipeline_job_resource_name}}": self.run.name,
            "{{$.pipeline_job_name}}": self.run.name,
        }
        if isinstance(value, str) and value not in placeholders and "{{$." in value:
            raise ValueError(f"local runs do not support the placeholder {value!r}")
        return placeholders.get(value, value) if isinstance(value, str) else value

    def _provision(self, name: str, component: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outputs of a task, with its log (driver.go:733-800)."""
        definitions = component.get("outputDefinitions", {})
        artifacts = {key: entry["artifactType"] for key, entry in definitions.get("artifacts", {}).items()}
        artifacts[EXECUTOR_LOGS] = {"schemaTitle": "system.Artifact"}
        root = f"{BUCKET}/v2/artifacts/{self.run.pipeline}/{self.run.id}/{name}/{uuid4()}"
        outputs: dict[str, Any] = {
            "artifacts": {
                key: {"artifacts": [{"name": key, "uri": f"{root}/{key}", "type": schema}]}
                for key, schema in artifacts.items()
            },
            "outputFile": f"{root}/output_metadata.json",
        }
        parameters = {key: {"outputFile": f"{PARAMETERS_FOLDER}/{key}"} for key in definitions.get("parameters", {})}
        return outputs | ({"parameters": parameters} if parameters else {})


def _artifact(source: Mapping[str, Any], graph: Graph) -> int:
    if "componentInputArtifact" in source:
        return graph.artifacts[source["componentInputArtifact"]]
    output = source["taskOutputArtifact"]
    return graph.tasks[output["producerTask"]].artifacts[output["outputArtifactKey"]]


def _converted(value: Any, kind: str | None) -> Any:
    """Return ``value`` as JSON text if a string is declared (resolve.go:203-217)."""
    return json.dumps(value) if kind == "STRING" and not isinstance(value, str) else value


def _fingerprint(
    task: Mapping[str, Any],
    component: Mapping[str, Any],
    container: Mapping[str, Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> str:
    """Return the cache key (cacheutils/cache.go:173-229); a key set by the pipeline replaces it (cache.go:88)."""
    key = task.get("cachingOptions", {}).get("cacheKey")
    if key:
        return sha256(f"{task['componentRef']['name']}\0{key}".encode()).hexdigest()
    parts = {
        "inputArtifactNames": {name: list(_names(entry)) for name, entry in inputs.get("artifacts", {}).items()},
        "inputParameterValues": inputs.get("parameterValues", {}),
        "outputArtifactsSpec": {
            name: {key: value for key, value in entry["artifacts"][0].items() if key != "uri"}
            for name, entry in outputs["artifacts"].items()
        },
        "outputParametersSpec": component.get("outputDefinitions", {}).get("parameters", {}),
        "containerSpec": {
            "image": container["image"],
            "cmdArgs": [*container.get("command", []), *container.get("args", [])],
            "pvcNames": sorted(set(container.get("pvcNames", []))),
        },
    }
    return sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _names(entry: Mapping[str, Any]) -> Iterator[str]:
    for artifact in entry["artifacts"]:
        yield artifact["name"]
