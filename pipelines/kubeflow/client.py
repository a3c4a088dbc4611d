"""Server of Kubeflow Pipelines: its client, runs, and the pipeline versions that runs and schedules
reference."""

import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from kfp import Client
from kfp.client import KF_PIPELINES_SA_TOKEN_PATH, ServiceAccountTokenVolumeCredentials
from kfp_server_api.exceptions import OpenApiException
from requests.utils import get_environ_proxies, select_proxy
from urllib3.exceptions import HTTPError

from bifocal.onnx.files import parse_json
from pipelines.kubeflow.compile import DESCRIPTION, NAME
from pipelines.kubeflow.resources import Resources

EXPERIMENT = "bifocal"
SECONDS = 5
PREFIX = "bifocal-"
"""Prefix of the names of schedules without a project."""


@contextmanager
def kfp_client() -> Iterator[Client]:
    """Yield a client of the server at ``KFP_ENDPOINT``; report its errors as ``OSError``.

    Optional variables: ``KFP_NAMESPACE``, the user's profile; ``KFP_TOKEN``, or ``KFP_TOKEN_FILE``
    with a token that is replaced before it expires (by default the mounted token of the pod's
    service account); ``KFP_COOKIES``, such as Dex's; ``KFP_CA``, a file with the certificates of
    the server's authorities.
    """
    endpoint = os.environ.get("KFP_ENDPOINT")
    forward = "kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888"
    if not endpoint:
        raise ValueError(
            f"KFP_ENDPOINT is not set: export KFP_ENDPOINT=http://localhost:8888 after '{forward}'"
        )
    try:
        with warnings.catch_warnings():
            # Each call warns that the client is for Kubeflow Pipelines 2.
            warnings.simplefilter("ignore", FutureWarning)
            client = Client(
                host=endpoint,
                namespace=os.environ.get("KFP_NAMESPACE") or "kubeflow",  # the client's own default
                existing_token=os.environ.get("KFP_TOKEN"),
                cookies=os.environ.get("KFP_COOKIES"),
                credentials=_mounted_token(),
                ssl_ca_cert=os.environ.get("KFP_CA"),
                proxy=select_proxy(endpoint, get_environ_proxies(endpoint)),
            )
        _check_answer(client, endpoint)
        yield client
    except HTTPError as error:
        raise OSError(
            f"no Kubeflow server answers at {endpoint} ({error}): is '{forward}' running?"
        ) from error
    except OpenApiException as error:
        status, body = (getattr(error, name, "") for name in ("status", "body"))
        raise OSError(
            f"{endpoint} rejected the request with status {status}: {body or error}; set "
            "KFP_TOKEN, KFP_TOKEN_FILE or KFP_COOKIES if the server needs a login, and "
            "KFP_NAMESPACE to a namespace that you may write to"
        ) from error


def _check_answer(client: Client, endpoint: str) -> None:
    """Raise ``OSError`` for the page of a login or a proxy, which kfp takes for an empty answer."""
    api = client._healthz_api
    answer = api.healthz_service_get_healthz(_preload_content=False, _request_timeout=SECONDS)
    try:
        found = parse_json(answer.data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OSError(
            f"{endpoint} answers with another text than Kubeflow's API, such as a page to log in: "
            "set KFP_TOKEN, KFP_TOKEN_FILE or KFP_COOKIES"
        )


def namespace_of(client: Client) -> str | None:
    """Return the namespace for runs and schedules: None for a server with one user.

    The calls of kfp's client do not all fall back to the client's namespace
    (``list_recurring_runs`` does not), so each of ours gets it.
    """
    namespace = os.environ.get("KFP_NAMESPACE") or client.get_user_namespace() or None
    if namespace is None and client.get_kfp_healthz().multi_user:
        raise ValueError(
            "the Kubeflow server has several users: export KFP_NAMESPACE=<your profile's "
            "namespace>, in which runs and schedules are created"
        )
    return namespace


def experiment_id(client: Client) -> str:
    """Return the id of the experiment of all runs; create it if it is not there."""
    return str(client.create_experiment(EXPERIMENT, namespace=namespace_of(client)).experiment_id)


def _mounted_token() -> Any:
    path = os.environ.get("KFP_TOKEN_FILE") or KF_PIPELINES_SA_TOKEN_PATH
    if os.environ.get("KFP_TOKEN_FILE") and not Path(path).is_file():
        raise ValueError(f"KFP_TOKEN_FILE is {path}, which is not a file")
    return ServiceAccountTokenVolumeCredentials(path) if Path(path).is_file() else None


@dataclass(frozen=True)
class Target:
    """Server, resources and commit that runs and schedules are created with."""

    client: Client
    resources: Resources
    revision: str
    prefix: str = PREFIX  # of the names of this project's schedules


def submit(text: str, target: Target) -> str:
    """Upload the compiled pipeline as a version, run it, and return the id of the run."""
    version = upload_version(target.client, text, target.revision)
    run = target.client.run_pipeline(
        experiment_id(target.client),
        f"{NAME} {target.revision[:12]} {datetime.now(UTC):%Y-%m-%d %H-%M-%S}",
        pipeline_id=version.pipeline_id,
        version_id=version.pipeline_version_id,
        pipeline_root=target.resources.pipeline_root,
        service_account=target.resources.service_account,
    )
    return str(run.run_id)


def upload_version(client: Client, text: str, revision: str) -> Any:
    """Upload the compiled pipeline as a version, unless the server has it already; return kfp's
    description of it.

    Its name has the commit and a hash of the content, because KFP refuses a second version with the
    same name.
    """
    name = f"{re.sub('[^a-z0-9]+', '-', revision.lower())[:12].strip('-')}-{sha256(text.encode()).hexdigest()[:12]}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{NAME}.yaml"
        file.write_text(text)
        pipeline_id = _pipeline_id(client, file)
        page = client.list_pipeline_versions(pipeline_id, filter=_named(name))
        if page.pipeline_versions:
            return page.pipeline_versions[0]
        description = f"commit {revision}"
        return client.upload_pipeline_version(str(file), name, pipeline_id, description=description)


def _pipeline_id(client: Client, file: Path) -> str:
    pipelines = find_pipelines(client)
    if not pipelines:
        pipelines = [client.upload_pipeline(str(file), NAME, DESCRIPTION, namespace_of(client))]
    return str(pipelines[0].pipeline_id)


def find_pipelines(client: Client) -> list[Any]:
    """Return the pipeline that runs and schedules use; none before the first run."""
    # kfp's get_pipeline_id lists shared pipelines only.
    namespace = namespace_of(client)
    return client.list_pipelines(namespace=namespace, filter=_named(NAME)).pipelines or []


def _named(name: str) -> str:
    return json.dumps(
        {"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]}
    )
