"""Kubeflow's API: the client, and a run on the cluster."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kfp
from kfp_server_api.exceptions import OpenApiException
from urllib3.exceptions import HTTPError

EXPERIMENT = "bifocal"


@contextmanager
def connected() -> Iterator[kfp.Client]:
    """A client of the server at ``KFP_ENDPOINT``, with the token in ``KFP_TOKEN`` if there is one.

    Raises:
        ValueError: no server is named.
        OSError: it does not answer, or refuses.
    """
    endpoint = os.environ.get("KFP_ENDPOINT")
    forward = "kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888"
    if not endpoint:
        raise ValueError(f"KFP_ENDPOINT is not set: export KFP_ENDPOINT=http://localhost:8888 after '{forward}'")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # that it is for Kubeflow 2, at each call
            client = kfp.Client(host=endpoint, existing_token=os.environ.get("KFP_TOKEN"))
        yield client
    except HTTPError as error:
        raise OSError(f"no Kubeflow answers at {endpoint} ({error}): is '{forward}' running?") from error
    except OpenApiException as error:
        status, said = (getattr(error, name, "") for name in ("status", "body"))
        raise OSError(
            f"{endpoint} refused with {status}: {said or error}; KFP_TOKEN holds the token, if any"
        ) from error


def submit(text: str) -> str:
    """Run a compiled pipeline; returns the run's id.

    Raises:
        ValueError, OSError: as ``connected`` does.
    """
    with tempfile.TemporaryDirectory() as folder, connected() as client:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text)
        run = client.create_run_from_pipeline_package(str(file), arguments={}, experiment_name=EXPERIMENT)
    return str(run.run_id)
