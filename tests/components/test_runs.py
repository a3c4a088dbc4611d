"""Tracking of a training by a real MLflow server that is down in the middle of it."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow_server import Proxy

from components.pretrain_sorter import run as training
from components.pretrain_sorter.spec import COMPONENT
from runtime import parameters
from runtime.mlflow import log_metrics, runs, stage_run
from runtime.stage import Job, run_stage

ROOT = Path(__file__).parents[2]
EPOCHS = 5
SHORT: dict[str, Any] = {
    "sorter": {"name": "PositionwiseLSTMSorter", "hidden": 4, "layers": 1},
    "length": 3,
    "training": {
        "batch_size": 16,
        "learning_rate": 0.01,
        "schedule": "Constant",
        "vectors_per_epoch": 32,
        "epochs": EPOCHS,
        "patience": EPOCHS,
        "tolerance": 0.01,
    },
}


@pytest.fixture
def server(mlflow_server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """The server behind a proxy that a test may stop and start."""
    proxy = Proxy(mlflow_server)
    proxy.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{proxy.port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(runs._queue, "retry_delay", 0.05)
    yield proxy
    proxy.stop()
    mlflow.set_tracking_uri(None)


def test_training_continues_during_an_outage_and_no_logged_value_is_lost(
    tmp_path: Path, server: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"seed": parameters.load(ROOT / "params.yaml")["seed"], "pretrain_sorter": SHORT}
    params = parameters.validate(values, [COMPONENT])["pretrain_sorter"]

    def log_with_outage(metrics: Mapping[str, float], step: int) -> None:
        if step == 2:
            server.stop()
        if step == 4:
            server.start()
        log_metrics(metrics, step)

    monkeypatch.setattr(training, "log_metrics", log_with_outage)
    run_stage(Job(COMPONENT, params, {}, {"sorter": tmp_path / "sorter"}, values))
    # Other tests of this process may have logged runs of the stage to the same server.
    (run,) = mlflow.search_runs(
        experiment_names=["bifocal"],
        filter_string="tags.stage = 'pretrain_sorter'",
        order_by=["attributes.start_time DESC"],
        max_results=1,
        output_format="list",
    )
    assert run.info.status == "FINISHED"
    assert run.data.params["training.learning_rate"] == str(
        values["pretrain_sorter"]["training"]["learning_rate"]
    )
    assert run.data.params["sorter.hidden"] == "4"
    history = pd.read_csv(tmp_path / "sorter" / "history.csv").set_index("epoch")
    assert history.index.tolist() == list(range(1, 1 + EPOCHS))
    logged = [name for name in history.columns if name in run.data.metrics]
    assert "held_out_l1" in logged
    cost = run.data.metrics
    assert 0 < cost["core_hours"] * 3600 < 100 * cost["duration_seconds"]
    for name in logged:
        metrics = [
            m for m in mlflow.MlflowClient().get_metric_history(run.info.run_id, name) if m.step
        ]
        assert [m.value for m in sorted(metrics, key=lambda m: m.step)] == pytest.approx(
            history[name].tolist()
        )


def test_stage_that_ends_during_an_outage_succeeds(
    server: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "FLUSH_SECONDS", 0.2)
    with stage_run("toy", {"seed": 1, "toy": {"rate": 0.5}}, {}):
        server.stop()
        log_metrics({"loss": 5.0})
