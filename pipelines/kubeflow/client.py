"""Client of the Kubeflow Pipelines API."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kfp
from kfp.client import KF_PIPELINES_SA_TOKEN_PATH, ServiceAccountTokenVolumeCredentials
from kfp_server_api.exceptions import OpenApiException
from urllib3.exceptions import HTTPError

EXPERIMENT = "bifocal"


@contextmanager
def kfp_client() -> Iterator[kfp.Client]:
    """Yield a client of the server at ``KFP_ENDPOINT``; report its errors as ``OSError``.

    Optional variables: ``KFP_NAMESPACE``, the user's profile; ``KFP_TOKEN``, or ``KFP_TOKEN_FILE`` with a token that is
    replaced before it expires (by default the mounted token of the pod's service account); ``KFP_COOKIES``, such as
    Dex's; ``KFP_CA``, a file with the certificates of the server's authorities.
    """
    endpoint = os.environ.get("KFP_ENDPOINT")
    forward = "kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888"
    if not endpoint:
        raise ValueError(f"KFP_ENDPOINT is not set: export KFP_ENDPOINT=http://localhost:8888 after '{forward}'")
    try:
        with warnings.catch_warnings():
            # Each call warns that the client is for Kubeflow Pipelines 2.
            warnings.simplefilter("ignore", FutureWarning)
            client = kfp.Client(
                host=endpoint,
                namespace=os.environ.get("KFP_NAMESPACE") or "kubeflow",  # the client's own default
                existing_token=os.environ.get("KFP_TOKEN"),
                cookies=os.environ.get("KFP_COOKIES"),
                credentials=_mounted_token(),
                ssl_ca_cert=os.environ.get("KFP_CA"),
            )
        yield client
    except HTTPError as error:
        raise OSError(f"no Kubeflow server answers at {endpoint} ({error}): is '{forward}' running?") from error
    except OpenApiException as error:
        status, body = (getattr(error, name, "") for name in ("status", "body"))
        raise OSError(
            f"{endpoint} rejected the request with status {status}: {body or error}; set KFP_TOKEN, KFP_TOKEN_FILE or "
            "KFP_COOKIES if the server needs a login, and KFP_NAMESPACE to a namespace that you may write to"
        ) from error


def namespace_of(client: kfp.Client) -> str | None:
    """Return the namespace for runs and schedules: None for a server with one user.

    The calls of kfp's client do not all fall back to the client's namespace (``list_recurring_runs`` does not), so
    each of ours gets it.
    """
    namespace = os.environ.get("KFP_NAMESPACE") or client.get_user_namespace() or None
    if namespace is None and client.get_kfp_healthz().multi_user:
        raise ValueError(
            "the Kubeflow server has several users: export KFP_NAMESPACE=<your profile's namespace>, in which runs and "
            "schedules are created"
        )
    return namespace


def experiment_id(client: kfp.Client) -> str:
    """Return the id of the experiment of all runs; create it if it is not there."""
    return str(client.create_experiment(EXPERIMENT, namespace=namespace_of(client)).experiment_id)


def _mounted_token() -> Any:
    path = os.environ.get("KFP_TOKEN_FILE") or KF_PIPELINES_SA_TOKEN_PATH
    if os.environ.get("KFP_TOKEN_FILE") and not Path(path).is_file():
        raise ValueError(f"KFP_TOKEN_FILE is {path}, which is not a file")
    return ServiceAccountTokenVolumeCredentials(path) if Path(path).is_file() else None
