"""Requests to 'mlflow models serve' for a registered model, in an environment where importing torch fails."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import mlflow
import numpy as np
import onnx
import pandas as pd
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from PIL import Image

from bifocal.serving import embedder
from bifocal.serving.embedder import Embedder
from bifocal.serving.pyfunc import EmbedderModel
from bifocal.text import Vocabulary
from components.register_model.run import run as register_model
from components.register_model.spec import RegisterModelParams
from runtime import artifacts
from runtime.mlflow import stage_run
from runtime.mlflow.registry import COLUMNS

MODEL = "served"
WORDS = ["a", "dog", "runs"]
REPORT = {direction: {"R@1": 1.0} for direction in ("caption_retrieval", "image_retrieval")}


def graph(file: Path, inputs: list[tuple[str, int, int]]) -> None:
    """Write a graph that averages the first input over its second axis: (B, T) -> (B, 1), (B, R, D) -> (B, D)."""
    values = [helper.make_tensor_value_info(name, kind, [None] * rank) for name, kind, rank in inputs]
    keep = inputs[0][2] == 2
    nodes = [
        helper.make_node("Cast", [inputs[0][0]], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers", "axes"], ["embedding"], keepdims=int(keep)),
        helper.make_node("Shape", [inputs[1][0]], ["unused"]),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, [None, None])
    onnx_graph = helper.make_graph(nodes, "mean", values, [output], [axes])
    onnx.save(helper.make_model(onnx_graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))


def backbone(file: Path, size: int) -> None:
    """Write a graph that returns one region per color channel: pixels (B, 3, size, size) -> (B, 3, size^2)."""
    pixels = helper.make_tensor_value_info("pixels", TensorProto.UINT8, [None, 3, size, size])
    nodes = [
        helper.make_node("Cast", ["pixels"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Reshape", ["numbers", "shape"], ["features"]),
    ]
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [0, 3, -1])
    output = helper.make_tensor_value_info("features", TensorProto.FLOAT, [None, None, None])
    onnx_graph = helper.make_graph(nodes, "backbone", [pixels], [output], [shape])
    onnx.save(helper.make_model(onnx_graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))
    artifacts.write_json(file.with_name("preprocessing.json"), {"size": size, "interpolation": "bicubic"})


def encoded(pixels: NDArray[np.uint8]) -> str:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def make_artifacts(folder: Path) -> tuple[Path, Path]:
    """Write an onnx and a metrics artifact in the format of the previous stages."""
    partial = artifacts.open_partial(folder / "onnx", {})
    graph(partial / "text_encoder.onnx", [("values", TensorProto.INT64, 2), ("lengths", TensorProto.INT64, 1)])
    graph(partial / "image_encoder.onnx", [("features", TensorProto.FLOAT, 3), ("mask", TensorProto.BOOL, 2)])
    backbone(partial / "backbone.onnx", size=2)
    Vocabulary(WORDS).save(partial / Vocabulary.FILE)
    artifacts.commit(partial, folder / "onnx", {"inputs": {}})
    partial = artifacts.open_partial(folder / "metrics", {})
    artifacts.write_json(partial / "metrics.json", REPORT)
    (partial / "MODEL_CARD.md").write_text("# A model\n\n## Data, parameters and lineage\n\n- code: c0de\n")
    artifacts.commit(partial, folder / "metrics", {"inputs": {}})
    return folder / "onnx", folder / "metrics"


def predict(port: int, rows: list[dict[str, Any]]) -> Any:
    body = json.dumps({"dataframe_records": rows}).encode()
    request = Request(f"http://127.0.0.1:{port}/invocations", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as response:
        return json.loads(response.read())["predictions"]


def test_each_input_has_a_column_type() -> None:
    assert tuple(COLUMNS) == embedder.INPUTS


def test_served_model_embeds_text_images_and_features_without_torch(
    tmp_path: Path, mlflow_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx_files, metrics = make_artifacts(tmp_path)
    (tmp_path / "registration").mkdir()
    params = RegisterModelParams(seed=1, model=MODEL, alias="candidate")
    with stage_run("register_model", {"seed": 1, "register_model": params.model_dump()}, {}):
        register_model(params, metrics=metrics, onnx=onnx_files, registration=tmp_path / "registration")
    version = mlflow.MlflowClient().get_model_version_by_alias(MODEL, "candidate")
    assert version.description.startswith("# A model")
    assert "c0de" not in version.description

    broken_torch = tmp_path / "broken" / "torch"
    broken_torch.mkdir(parents=True)
    (broken_torch / "__init__.py").write_text("raise ImportError('serving must not import torch')\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [f"--model-uri=models:/{MODEL}@candidate", "--env-manager=local", "--host=127.0.0.1", f"--port={port}"]
    log = (tmp_path / "log.txt").open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "models", "serve", *arguments],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(broken_torch.parent),
            # MLflow starts uvicorn by its name.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
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
        expected = EmbedderModel(Embedder(onnx_files)).predict(pd.DataFrame(rows))["embedding"].tolist()
        np.testing.assert_allclose([row["embedding"] for row in predict(port, rows)], expected)
        regions = np.arange(12.0).reshape(3, 4)
        (prediction,) = predict(port, [{"features": regions.tolist()}])
        assert prediction["embedding"] == pytest.approx(regions.mean(axis=0).tolist())
        pixels = np.random.default_rng(2).integers(0, 256, (2, 2, 3), dtype=np.uint8)
        mixed = predict(port, [{"image": encoded(pixels), "text": None}, {"image": None, "text": "dog"}])
        assert mixed[0]["embedding"] == pytest.approx(pixels.mean(axis=2).ravel().tolist(), rel=1e-3)
        assert mixed[1]["embedding"] == Embedder(onnx_files).embed_sentences(["dog"])[0].tolist()
        for row, message in (
            ({"text": None}, "none, expected one of text, image, features"),
            ({"image": "x"}, "base64 of an image file"),
            ({"txt": "dog"}, "no row has text or image or features; columns of other names are ignored"),
        ):
            with pytest.raises(HTTPError) as error:
                predict(port, [row])
            assert message in error.value.read().decode()
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()
        log.close()
