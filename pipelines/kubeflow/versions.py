"""Pipeline versions on the server: runs and schedules reference one, so Kubeflow's page shows which code they ran."""

import json
import re
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from kfp import Client

from pipelines.kubeflow.client import namespace_of
from pipelines.kubeflow.compile import DESCRIPTION, NAME


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
