"""MLflow run for the monitoring of a model: one run per reference, with each week's metrics as a step."""

import time
from pathlib import Path

from mlflow.entities import Metric, Run

from bifocal.monitoring.reference import Reference
from bifocal.monitoring.week import Week
from runtime.mlflow.connection import connect, experiment_id, mlflow_errors_as_oserror

TAG = "bifocal.monitoring"


def log_monitoring(week: Week, reference: Reference, page: Path) -> None:
    """Log a week's results and page to the run of its reference, at the days since it; ``OSError`` without a server."""
    step, folder = max((week.day - reference.day).days, 0), week.day.isoformat()
    tags = {"hash.model": reference.model, "monitoring.reference": reference.day.isoformat()}
    with mlflow_errors_as_oserror():
        client = connect()
        experiment = experiment_id(client)
        found = client.search_runs([experiment], f"tags.`{TAG}` = '{reference.name}'", max_results=1)
        run: Run = (
            found[0] if found else client.create_run(experiment, tags={TAG: reference.name}, run_name="monitoring")
        )
        run_id, now = run.info.run_id, time.time_ns() // 1_000_000
        for key, value in tags.items():
            client.set_tag(run_id, key, value)
        client.log_batch(run_id, [Metric(name, float(value), now, step) for name, value in week.metrics().items()])
        client.log_artifact(run_id, str(page), folder)
        client.set_terminated(run_id)
