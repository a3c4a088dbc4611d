"""Time-out of artifacts that pass through MLflow's server, apart from its other requests.

MLflow 3.17 reads ``MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT`` for Azure and Google only: its client for the server's own
artifacts has the time-out of all requests, by default 120 s.
"""

from typing import Any

from mlflow.environment_variables import MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT
from mlflow.store.artifact import http_artifact_repo
from mlflow.utils.rest_utils import http_request


def artifact_request(*arguments: Any, **options: Any) -> Any:
    """Send a request that carries an artifact."""
    options.setdefault("timeout", MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT.get())
    return http_request(*arguments, **options)


vars(http_artifact_repo).update(http_request=artifact_request)
