"""Jobs of commands: a stage, a shard, or the merge of shards, on the artifacts of a workspace."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runtime import parameters
from runtime.process import under_torchrun
from runtime.s3.remote_files import download_user_files, source_digests
from runtime.s3.storage import Storage
from runtime.s3.uri import cache_path, is_remote
from runtime.shards import LISTING, artifact_name, parse_shard
from runtime.spec import Component
from runtime.stage import Job


class Workspace:
    """Folder of the artifacts; one on S3 has local copies of the artifacts that a stage reads or
    writes."""

    def __init__(self, address: str) -> None:
        self.address, self.remote = address, is_remote(address)
        if self.remote and under_torchrun():
            raise ValueError(
                f"--artifacts {address}: torchrun needs a local folder that all its processes see"
            )
        self.folder = cache_path(address) if self.remote else Path(address)

    def download(self, paths: Iterable[Path]) -> None:
        """Make local copies of artifacts equal to the artifacts on S3; do nothing for a local
        folder."""
        for path in paths if self.remote else ():
            Storage().download(f"{self.address}/{path.name}", path)

    def upload(self, paths: Iterable[Path]) -> None:
        """Upload local copies of artifacts to S3; do nothing for a local folder."""
        for path in paths if self.remote else ():
            Storage().upload(path, f"{self.address}/{path.name}")


def stage_job(
    component: Component, values: Mapping[str, Any], workspace: Workspace, shard: str | None = None
) -> Job:
    """Return the job of a stage, or of its ``shard`` i/n; download the user files that are on
    S3."""
    local = download_user_files(values, component)
    section = {"seed": local["seed"], component.name: local[component.name]}
    params = parameters.validate(section, [component])[component.name]
    unused = params.unused_inputs
    inputs = {name: workspace.folder / name for name in component.inputs if name not in unused}
    if shard is not None:
        number, count = parse_shard(shard, int(not component.listed_paths))
        if number and component.listed_paths:
            name = artifact_name(component.outputs[0], f"0/{count}")
            inputs[LISTING] = workspace.folder / name
    return Job(
        component,
        params,
        inputs=inputs,
        outputs={
            name: workspace.folder / (artifact_name(name, shard) if shard else name)
            for name in component.outputs
        },
        values=values,
        arguments={"shard": shard} if shard else {},
        sources={} if LISTING in inputs else source_digests(values, component),
    )


def merge_job(
    component: Component,
    merge_step: Component,
    values: Mapping[str, Any],
    workspace: Workspace,
    count: int,
) -> Job:
    """Return the job that merges ``count`` shards of ``component`` by ``merge_step``."""
    (merged,) = component.outputs
    return Job(
        merge_step,
        merge_step.params(seed=values["seed"]),
        inputs={
            f"shard_{i}": workspace.folder / artifact_name(merged, f"{i}/{count}")
            for i in range(1, count + 1)
        },
        outputs={merged: workspace.folder / merged},
        values=values,
    )
