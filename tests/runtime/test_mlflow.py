"""Tracking against a real MLflow server, which is killed in the middle of a training and comes back."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import mlflow
import pandas as pd
import pytest
import torch

from bifocal.datasets import read_dataset, write_dataset
from bifocal.datasets.corpora import Scenes
from bifocal.features import FeatureWriter
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import write_text
from components.train_embedding import run as training
from components.train_embedding.spec import COMPONENT
from runtime import artifacts, parameters
from runtime.mlflow import log_metrics, runs, stage_run
from runtime.stage import run_stage

ROOT = Path(__file__).parents[2]
SHORT: dict[str, Any] = {
    "dim": 8,
    "image_encoder": {"name": "ProjectionEncoder"},
    "text_encoder": {"name": "ProjectionEncoder"},
    "epochs": 5,
    "batch_size": 16,
    "decay_after": [],
}
VALUES = {"seed": 1, "toy": {"rate": 0.5, "encoder": {"name": "X"}}}


def start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    """The server of 'make mlflow', on a free port, answering."""
    arguments = [
        f"--backend-store-uri=sqlite:///{folder}/mlflow.db", f"--artifacts-destination={folder}/files", "--workers=1",
        "--host=127.0.0.1", f"--port={port}", f"--allowed-hosts=127.0.0.1,127.0.0.1:{port}",
    ]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *arguments],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return process
        except (URLError, OSError):
            time.sleep(0.3)
    stop(process)
    raise TimeoutError("the server did not start")


def stop(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    return number


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    """What train_embedding reads: scenes, tf-idf of their captions, and features that are no more than noise."""
    paths = {name: tmp_path / name for name in ("dataset", "features", "text", "sorter")}
    partials = {name: artifacts.open_partial(path, {}) for name, path in paths.items()}
    corpus = Scenes(train=24, val=6, test=2, size=64).read(partials["dataset"] / "images")
    write_dataset(partials["dataset"], "Scenes", corpus, copy_images=True, max_pixels=10_000, max_rejected_fraction=0.0)
    tables = read_dataset(partials["dataset"])
    vectorizer, captions = TFIDF(min_count=1), tables.captions
    vectorizer.fit(list(captions["text"]), seed=0)
    write_text(partials["text"], vectorizer, captions["caption_id"], list(captions["text"]))
    with FeatureWriter(partials["features"], regions=2, dim=8, metadata={}, shard_size=64) as writer:
        for image_id in tables.images["image_id"]:
            writer.add(str(image_id), torch.randn(2, 8).numpy())
    for name, partial in partials.items():
        artifacts.commit(partial, paths[name], {})
    return paths


def test_a_training_outlives_the_server_and_nothing_that_it_logged_is_lost(
    tmp_path: Path, port: int, inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(runs._queue, "retry_delay", 0.5)
    given = parameters.merge(parameters.load(ROOT / "params.yaml"), {"train_embedding": SHORT})
    values = {name: given[name] for name in ("seed", "train_embedding")}
    params = parameters.validate(values, [COMPONENT])["train_embedding"]
    server = start(tmp_path, port)

    def log_and_interrupt(figures: Mapping[str, float], step: int) -> None:
        nonlocal server
        if step == 2:
            stop(server)
        if step == 4:
            server = start(tmp_path, port)
            time.sleep(runs._queue.retry_delay)
        log_metrics(figures, step)

    monkeypatch.setattr(training, "log_metrics", log_and_interrupt)
    try:
        run_stage(COMPONENT, params, inputs, {"embedding": tmp_path / "embedding"}, values)
        (run,) = mlflow.search_runs(
            experiment_names=["bifocal"], filter_string="tags.stage = 'train_embedding'", output_format="list"
        )
        assert run.info.status == "FINISHED"
        assert run.data.params["learning_rate"] == str(values["train_embedding"]["learning_rate"])
        written = pd.read_csv(tmp_path / "embedding" / "history.csv")
        assert written["epoch"].tolist() == list(range(1, 1 + SHORT["epochs"]))
        for name in ("loss", "recall_sum"):
            history = mlflow.MlflowClient().get_metric_history(run.info.run_id, name)
            logged = [metric.value for metric in sorted(history, key=lambda metric: metric.step)]
            assert logged == pytest.approx(written[name].tolist())
        with stage_run("toy", VALUES, {}):
            stop(server)
            monkeypatch.setattr(runs, "FLUSH_SECONDS", 1.0)
            log_metrics({"loss": 5.0})
    finally:
        if server.poll() is None:
            stop(server)
        mlflow.set_tracking_uri(None)
