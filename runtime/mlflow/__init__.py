"""MLflow: runs of stages, registered models, promotion lock. The only package that imports
mlflow."""

import os

# MLflow reads these variables once, when it is imported.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# Hide MLflow's progress bars and URLs: stages print their own results.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
# Fail fast when the server is down (2 retries, 20 s): the retry queue sends again later.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
# The answer to an upload waits until the server has stored the file, so artifacts have a time-out
# of their own.
os.environ.setdefault("MLFLOW_ARTIFACT_UPLOAD_DOWNLOAD_TIMEOUT", "600")
# The answer decides who holds the promotion lock, and whether a request is repeated.
os.environ["MLFLOW_ENABLE_ASYNC_LOGGING"] = "false"

from runtime.mlflow.aliases import (
    VETO,
    alias_lock,
    log_online_decision,
    log_promotion,
    make_champion,
    move_alias,
    read_looks,
    roll_back,
    withdraw,
)
from runtime.mlflow.lock import promotion_lock, remove_lock
from runtime.mlflow.parents import PipelineRun, create_pipeline_run, end_pipeline_run
from runtime.mlflow.registry import (
    EVALUATION_DIR,
    RELEASE_TAG,
    RegisteredVersion,
    get_version,
    get_version_number,
    reuse_version,
    version_tags,
)
from runtime.mlflow.runs import (
    git_commit,
    log_datasets,
    log_figure,
    log_files,
    log_metrics,
    stage_run,
)
