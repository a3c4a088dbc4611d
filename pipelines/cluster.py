"""Kubeflow's API: the client, and a run on the cluster."""

import os
import tempfile
from pathlib import Path

import kfp

EXPERIMENT = "bifocal"


def client() -> kfp.Client:
    """A client of the server at ``KFP_ENDPOINT``, with the token in ``KFP_TOKEN`` if there is one.

    Raises:
        ValueError: no server is named.
    """
    endpoint = os.environ.get("KFP_ENDPOINT")
    if not endpoint:
        raise ValueError(
            "KFP_ENDPOINT is not set: export KFP_ENDPOINT=http://localhost:8888 after "
            "'kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888'"
        )
    return kfp.Client(host=endpoint, existing_token=os.environ.get("KFP_TOKEN"))


def submit(text: str) -> str:
    """Run a compiled pipeline; returns the run's id."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text)
        run = client().create_run_from_pipeline_package(str(file), arguments={}, experiment_name=EXPERIMENT)
    return str(run.run_id)
