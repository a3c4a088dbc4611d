"""MLflow run of the monitoring of a model: one run per reference, with the metrics of each week as a step."""

import time
from collections.abc import Mapping
from pathlib import Path

from mlflow.entities import Metric, Run

from runtime.mlflow.connection import connect, experiment_id, mlflow_errors_as_oserror

TAG = "bifocal.monitoring"


def log_monitoring(
    reference: str, step: int, metrics: Mapping[str, float], tags: Mapping[str, str], page: Path, folder: str
) -> None:
    """Log the results of a week to the run of its reference, which the first week creates.

    Args:
        reference: identity of the reference.
        step: days since the reference was written.
        metrics: values by name.
        tags: of the run.
        page: HTML file to log.
        folder: of the page in the run.

    Raises:
        OSError: the server does not answer, or rejects a request.
    """
    with mlflow_errors_as_oserror():
        client = connect()
        experiment = experiment_id(client)
        found = client.search_runs([experiment], f"tags.`{TAG}` = '{reference}'", max_results=1)
        run: Run = found[0] if found else client.create_run(experiment, tags={TAG: reference}, run_name="monitoring")
        run_id, now = run.info.run_id, time.time_ns() // 1_000_000
        for key, value in tags.items():
            client.set_tag(run_id, key, value)
        client.log_batch(run_id, [Metric(name, float(value), now, step) for name, value in metrics.items()])
        client.log_artifact(run_id, str(page), folder)
        client.set_terminated(run_id)
