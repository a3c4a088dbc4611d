"""Requests to MLflow's server of a registered model, where importing torch fails."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.pyfunc import scoring_server
from mlflow_server import free_port

from bifocal.onnx import encoders
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.pyfunc import EmbeddingPredictor
from components.register_model.run import run as register_model
from components.register_model.spec import RegisterModelParams
from runtime.mlflow import stage_run
from runtime.mlflow.exported import COLUMNS
from tests.components.register_model.served_artifacts import encoded, make_artifacts

ROOT = Path(__file__).parents[3]
MODEL = "served"


def records(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"dataframe_records": rows}).encode()


def post(port: int, body: bytes) -> tuple[int, str]:
    """Return status and body of the answer."""
    request = Request(
        f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"}
    )
    try:
        with urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def predict(port: int, rows: list[dict[str, Any]]) -> Any:
    status, text = post(port, records(*rows))
    assert status == 200, text
    return json.loads(text)["predictions"]


def test_each_input_has_a_column_type() -> None:
    assert tuple(COLUMNS) == encoders.INPUTS


@pytest.mark.slow
def test_served_model_embeds_text_images_and_features_without_torch(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx_files, metrics = make_artifacts(tmp_path)
    (tmp_path / "registration").mkdir()
    params = RegisterModelParams(seed=1, model=MODEL, alias="candidate")
    with stage_run("register_model", {"seed": 1, "register_model": params.model_dump()}, {}):
        register_model(
            params, metrics=metrics, onnx=onnx_files, registration=tmp_path / "registration"
        )
    version = mlflow.MlflowClient().get_model_version_by_alias(MODEL, "candidate")
    assert version.description.startswith("# A model")
    assert "c0de" not in version.description
    client = mlflow.MlflowClient()
    (output,) = client.get_run(version.run_id).outputs.model_outputs
    logged = client.get_logged_model(output.model_id)
    assert [(m.key, m.value, m.dataset_digest) for m in logged.metrics] == [
        ("R_at_1", 0.5, 36 * "a")
    ]
    assert (
        version.source == f"models:/{logged.model_id}"
    )  # MLflow's own databases keep no model_id of a version

    model = mlflow.pyfunc.load_model(f"models:/{MODEL}@candidate")
    with pytest.raises(MlflowException) as error:  # what 'mlflow models serve' answers
        scoring_server.invocations(
            records({"text": None}), "application/json", model, model.metadata.get_input_schema()
        )
    assert error.value.get_http_status_code() == 400
    assert "stack_trace" not in json.loads(error.value.serialize_as_json())

    pixels = np.random.default_rng(2).integers(0, 256, (2, 2, 3), dtype=np.uint8)
    files = pd.DataFrame(
        {"image": [base64.b64decode(encoded(pixels)), encoded(pixels)]}
    )  # binary, or base64
    binary, text = (embedding.tolist() for embedding in model.predict(files)["embedding"])
    assert binary == text == pytest.approx(pixels.mean(axis=2).ravel().tolist(), rel=1e-3)

    broken_torch = tmp_path / "broken" / "torch"
    broken_torch.mkdir(parents=True)
    (broken_torch / "__init__.py").write_text(
        "raise ImportError('serving must not import torch')\n"
    )
    port = free_port()
    log = (tmp_path / "log.txt").open("wb")
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "mlflow",
            "models",
            "serve",
            "--env-manager",
            "local",
            "--model-uri",
            f"models:/{MODEL}@candidate",
            "--port",
            str(port),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(broken_torch.parent),
            "BIFOCAL_MAX_ROWS": "3",
        },
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 150
        while True:
            assert server.poll() is None, (tmp_path / "log.txt").read_text()[-3000:]
            assert time.monotonic() < deadline, (tmp_path / "log.txt").read_text()[-3000:]
            try:
                with urlopen(f"http://127.0.0.1:{port}/ping", timeout=2):
                    break
            except (URLError, OSError):
                time.sleep(0.3)
        rows = [{"text": "A dog runs."}, {"text": "a zebra"}, {"text": "dog"}]
        expected = (
            EmbeddingPredictor(Embedder(onnx_files))
            .predict(pd.DataFrame(rows))["embedding"]
            .tolist()
        )
        np.testing.assert_allclose([row["embedding"] for row in predict(port, rows)], expected)
        regions = np.arange(12.0).reshape(3, 4)
        (prediction,) = predict(port, [{"features": regions.tolist()}])
        assert prediction["embedding"] == pytest.approx(regions.mean(axis=0).tolist())
        mixed = predict(
            port, [{"image": encoded(pixels), "text": None}, {"image": None, "text": "dog"}]
        )
        assert mixed[0]["embedding"] == pytest.approx(
            pixels.mean(axis=2).ravel().tolist(), rel=1e-3
        )
        assert mixed[1]["embedding"] == Embedder(onnx_files).embed_sentences(["dog"])[0].tolist()
        for body, status, message in (
            (records({"text": None}), 400, "row 0 has none, expected one of text, image, features"),
            (records({"image": "x"}), 400, "expected the base64 of an image file"),
            (
                records({"txt": "dog"}),
                400,
                "no row has text or image or features; columns of other names are ignored",
            ),
            (
                records(*rows, {"text": "dog"}),
                400,
                "the request has 4 rows, at most 3 are accepted (BIFOCAL_MAX_ROWS",
            ),
            (records({"features": [[1.0], [2.0, 3.0]]}), 400, "row 0 has invalid features"),
        ):
            answered, text = post(port, body)
            answer = json.loads(text)
            assert answered == status
            assert message in answer["message"]
            assert "Traceback" not in text
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        log.close()
