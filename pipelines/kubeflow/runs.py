"""Runs on a cluster."""

from dataclasses import dataclass
from datetime import UTC, datetime

from kfp import Client

from pipelines.kubeflow.client import experiment_id
from pipelines.kubeflow.compile import NAME
from pipelines.kubeflow.resources import Resources
from pipelines.kubeflow.versions import upload_version


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
