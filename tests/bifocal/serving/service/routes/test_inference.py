"""The Open Inference Protocol: health, metadata, and embeddings of sentences and images."""

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bifocal.search.trained_model import TrainedModel
from tests.bifocal.serving.server import JSON, Server

INFER = "/v2/models/bifocal/infer"


def infer(server: Server, **request: Any) -> tuple[int, Any]:
    status, body, _ = server.request("POST", INFER, json.dumps(request).encode(), JSON)
    return status, json.loads(body)


def given(name: str, data: list[Any], shape: list[int] | None = None, datatype: str = "BYTES") -> dict[str, Any]:
    return {"name": name, "shape": shape or [len(data)], "datatype": datatype, "data": data}


def test_health_and_metadata(server: Server) -> None:
    assert json.loads(server.get("/v2/health/live")[1]) == {"live": True}
    assert json.loads(server.get("/v2/health/ready")[1]) == {"ready": True}
    assert json.loads(server.get("/v2/models/bifocal/ready")[1]) == {"ready": True}
    assert json.loads(server.get("/v2")[1])["name"] == "bifocal"
    information = json.loads(server.get("/api/v1/info")[1])
    assert json.loads(server.get("/v2/models/bifocal")[1]) == {
        "name": "bifocal", "versions": [information["model_hash"]], "platform": "onnx_onnxv1",
        "inputs": [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in ("text", "image")],
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 192]}],
        "parameters": {
            "max_elements": 20_000, "max_depth": 16, "max_rows": 4096, "max_body_bytes": 20_000_000,
        },
    }  # fmt: skip
    assert server.get("/v2/models/other")[0] == server.get("/v2/models/other/ready")[0] == 404


def test_embeddings_equal_the_library(server: Server, demo: TrainedModel) -> None:
    texts = [f"{number} red stars" for number in range(70)]
    paths = [Path(str(demo.collection.image(row))) for row in range(9)]
    images = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    expected = {"text": demo.encode_text(texts), "image": demo.encode_image(paths)}
    for name, data in (("text", texts), ("image", images)):
        for shaped in (given(name, data), given(name, [[value] for value in data], [len(data), 1])):
            request = {"id": "7", "parameters": {"priority": 1}, "inputs": [shaped], "outputs": [{"name": "embedding"}]}
            status, answer = infer(server, **request)
            assert status == 200, answer
            (output,) = answer["outputs"]
            assert (answer["id"], answer["model_name"]) == ("7", "bifocal")
            assert (output["name"], output["datatype"], output["shape"]) == ("embedding", "FP32", [len(data), 192])
            np.testing.assert_allclose(np.reshape(output["data"], output["shape"]), expected[name], atol=1e-5)


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [given("text", [])],
        [given("text", ["a"]), given("text", ["b"])],
        [given("words", ["a"])],
        [given("text", ["a"], [2])],
        [given("text", ["a", "b"], [1, 2])],
        [given("text", [["a", "b"]], [1, 1])],
        [given("text", ["a"], [1, 1, 1])],
        [given("text", ["a"], datatype="FP32")],
        [given("text", [1])],
        [given("text", [""])],
        [given("text", ["x" * 10_001])],
        [given("image", ["no base64"])],
        [given("text", ["a"] * 4097)],
    ],
)
def test_wrong_requests_are_answered_with_400(server: Server, inputs: list[dict[str, Any]]) -> None:
    status, answer = infer(server, inputs=inputs)
    assert status == 400
    assert answer["error"]


def test_large_bodies_are_refused(server: Server) -> None:
    assert server.request("POST", INFER, b" " * 20_000_001, JSON)[0] == 413


def test_bodies_of_many_elements_leave_the_probes_alive(server: Server) -> None:
    start = b'{"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ['
    bodies = [start + piece * (2_000_000 // len(piece)) + end + b"]}]}" for piece, end in PIECES]
    slowest, done = 0.0, threading.Event()

    def probe() -> None:
        nonlocal slowest
        while not done.is_set():
            began = time.perf_counter()
            assert server.get("/healthz")[0] == 200
            slowest = max(slowest, time.perf_counter() - began)

    prober = threading.Thread(target=probe)
    prober.start()
    try:
        for body in bodies:
            began = time.perf_counter()
            status, answer, _ = server.request("POST", INFER, body, JSON)
            assert status == 400, answer[:300]
            assert time.perf_counter() - began < 5
    finally:
        done.set()
        prober.join()
    assert slowest < 2


PIECES = [
    (b"1,", b"1"), (b"[],", b"[]"), (b"[1],", b"[1]"), (b'{"a":0},', b"0"), (b'"",', b"0"), (b"[", b""),
    (b'"\\\\",', b"0"), (b'"a\\"b",', b"0"), (b'\\"', b""), (b'"', b""),
]  # fmt: skip
