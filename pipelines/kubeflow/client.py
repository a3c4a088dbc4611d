"""Client of the Kubeflow Pipelines API."""

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
def kfp_client() -> Iterator[kfp.Client]:
    """Yield a client of the server at ``KFP_ENDPOINT``; ``KFP_TOKEN`` holds the token, if the server needs one.

    Raises:
        ValueError: ``KFP_ENDPOINT`` is not set.
        OSError: the server does not answer, or rejects a request.
    """
    endpoint = os.environ.get("KFP_ENDPOINT")
    forward = "kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888"
    if not endpoint:
        raise ValueError(f"KFP_ENDPOINT is not set: export KFP_ENDPOINT=http://localhost:8888 after '{forward}'")
    try:
        with warnings.catch_warnings():
            # Each call warns that the client is for Kubeflow Pipelines 2.
            warnings.simplefilter("ignore", FutureWarning)
            client = kfp.Client(host=endpoint, existing_token=os.environ.get("KFP_TOKEN"))
        yield client
    except HTTPError as error:
        raise OSError(f"no Kubeflow server answers at {endpoint} ({error}): is '{forward}' running?") from error
    except OpenApiException as error:
        status, body = (getattr(error, name, "") for name in ("status", "body"))
        raise OSError(
            f"{endpoint} rejected the request with status {status}: {body or error}; set KFP_TOKEN if the server "
            "needs a token"
        ) from error


def submit(text: str) -> str:
    """Run a compiled pipeline and return the id of the run.

    Raises:
        ValueError, OSError: see :func:`kfp_client`.
    """
    with tempfile.TemporaryDirectory() as folder, kfp_client() as client:
        file = Path(folder) / "pipeline.yaml"
        file.write_text(text)
        run = client.create_run_from_pipeline_package(str(file), arguments={}, experiment_name=EXPERIMENT)
    return str(run.run_id)
