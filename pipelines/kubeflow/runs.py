"""Runs on a cluster, and the versions of the pipeline that runs and schedules reference."""

import json
import re
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from kfp import Client

from pipelines.kubeflow.client import experiment_id, namespace_of
from pipelines.kubeflow.compile import DESCRIPTION, NAME
from pipelines.kubeflow.resources import Resources


@dataclass(frozen=True)
class Target:
    """Server, resources and commit that runs and schedules are created with."""

    client: Client
    resources: Resources
    revision: str


def submit(text: str, target: Target) -> str:
    """Upload the compiled pipeline as a version, run it, and return the id of the run."""
    version = upload_version(target.client, text, target.revision)
    run = target.client.run_pipeline(
        experiment_id(target.client),
        f"{NAME} {target.revision[:12]} {datetime.now(UTC):%Y-%m-%d %H-%M-%S}",
        pipeline_id=version.pipeline_id,
        version_id=version.version_id,
        pipeline_root=target.resources.pipeline_root,
        service_account=target.resources.service_account,
    )
    return str(run.run_id)


class PipelineVersion(NamedTuple):
    """Reference of one version of the pipeline on the server."""

    pipeline_id: str
    version_id: str


def upload_version(client: Client, text: str, revision: str) -> PipelineVersion:
    """Upload the compiled pipeline as a version, unless the server has it already.

    Its name has the commit and a hash of the content, because KFP refuses a second version with the same name.
    """
    name = f"{re.sub('[^a-z0-9]+', '-', revision.lower())[:12].strip('-')}-{sha256(text.encode()).hexdigest()[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{NAME}.yaml"
        file.write_text(text)
        pipeline_id = _pipeline_id(client, file)
        page = client.list_pipeline_versions(pipeline_id, filter=_named(name))
        versions: list[Any] = page.pipeline_versions or []
        if not versions:
            description = f"commit {revision}"
            versions = [client.upload_pipeline_version(str(file), name, pipeline_id, description=description)]
    return PipelineVersion(pipeline_id, versions[0].pipeline_version_id)


def _pipeline_id(client: Client, file: Path) -> str:
    namespace = namespace_of(client)
    # kfp's get_pipeline_id lists shared pipelines only.
    pipelines = client.list_pipelines(namespace=namespace, filter=_named(NAME)).pipelines or []
    if not pipelines:
        pipelines = [client.upload_pipeline(str(file), NAME, DESCRIPTION, namespace)]
    return str(pipelines[0].pipeline_id)


def _named(name: str) -> str:
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
