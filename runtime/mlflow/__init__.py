"""MLflow: the only package that imports it. Runs of stages, and the registry of models."""

import os

# Before mlflow is imported: it reads this once, and the project calls nobody unasked.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# Stages and promotions say what came of them; these are bars and addresses between the lines.
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
# A server that is away is tried again by the mailbox of runs; meanwhile the work must not stand still.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")

from runtime.mlflow.registry import EVIDENCE as EVIDENCE
from runtime.mlflow.registry import Version as Version
from runtime.mlflow.registry import get_version as get_version
from runtime.mlflow.registry import move_alias as move_alias
from runtime.mlflow.registry import promotion_lock as promotion_lock
from runtime.mlflow.registry import register as register
from runtime.mlflow.registry import remove_lock as remove_lock
from runtime.mlflow.runs import git_commit as git_commit
from runtime.mlflow.runs import log_figure as log_figure
from runtime.mlflow.runs import log_files as log_files
from runtime.mlflow.runs import log_metrics as log_metrics
from runtime.mlflow.runs import stage_run as stage_run
