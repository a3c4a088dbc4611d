"""Job of one command: a stage, a shard, or the merge of shards."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime import parameters
from runtime.artifacts import fingerprint_of, read_manifest
from runtime.s3.user_files import download_user_files, source_digests
from runtime.shards import artifact_name
from runtime.spec import Component, Params
from runtime.stage import run_stage, stage_fingerprint
from runtime.workspace import Workspace


@dataclass(frozen=True)
class Job:
    """A component with its parameters and the names of its artifacts."""

    component: Component
    params: Params
    inputs: Mapping[str, str]  # name of the artifact in the workspace, by the name of the component's argument
    outputs: Mapping[str, str]
    # keyword arguments of the component besides parameters and artifacts
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)  # digest of each user file on S3

    def is_complete(self, workspace: Workspace, values: Mapping[str, Any]) -> bool:
        """Whether ``workspace`` has the outputs of this very job: same inputs, parameters, code and packages."""
        inputs = {name: workspace.path(artifact) for name, artifact in self.inputs.items()}
        try:
            expected = stage_fingerprint(self.component, self.params, inputs, values, self.arguments, self.sources)
            manifests = [read_manifest(workspace.path(artifact)) for artifact in self.outputs.values()]
        except (FileNotFoundError, ValueError):
            return False
        return all(fingerprint_of(manifest) == json.loads(json.dumps(expected, default=str)) for manifest in manifests)

    def run(self, workspace: Workspace, values: Mapping[str, Any]) -> dict[str, float]:
        """Run the component on the artifacts of ``workspace``; return its metrics."""
        workspace.download(self.inputs.values())
        inputs = {name: workspace.path(artifact) for name, artifact in self.inputs.items()}
        outputs = {name: workspace.path(artifact) for name, artifact in self.outputs.items()}
        return run_stage(self.component, self.params, inputs, outputs, values, self.arguments, self.sources).metrics


def stage_job(component: Component, values: Mapping[str, Any], shard: str | None = None) -> Job:
    """Return the job of a stage, or of its ``shard`` i/n; download the user files that are on S3."""
    sources = source_digests(values, component)
    local = download_user_files(values, component)
    section = {"seed": local["seed"], component.name: local[component.name]}
    return Job(
        component,
        parameters.validate(section, [component])[component.name],
        inputs={name: name for name in component.inputs},
        outputs={name: artifact_name(name, shard) if shard else name for name in component.outputs},
        arguments={"shard": shard} if shard else {},
        sources=sources,
    )


def merge_job(component: Component, merge_step: Component, count: int, seed: int) -> Job:
    """Return the job that merges ``count`` shards of ``component`` by ``merge_step``."""
    (merged,) = component.outputs
    shards = {f"shard_{number}": artifact_name(merged, f"{number}/{count}") for number in range(1, count + 1)}
    return Job(merge_step, merge_step.params(seed=seed), inputs=shards, outputs={merged: merged})
