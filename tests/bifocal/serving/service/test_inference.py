"""The Open Inference Protocol: health, metadata, and embeddings of sentences and images."""

import base64
import json
import struct
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


def given(
    name: str, data: list[Any], shape: list[int] | None = None, datatype: str = "BYTES"
) -> dict[str, Any]:
    return {"name": name, "shape": shape or [len(data)], "datatype": datatype, "data": data}


def test_health_and_metadata(server: Server) -> None:
    assert json.loads(server.get("/v2/health/live")[1]) == {"live": True}
    assert json.loads(server.get("/v2/health/ready")[1]) == {"ready": True}
    ready = {"name": "bifocal", "ready": True}
    assert json.loads(server.get("/v2/models/bifocal/ready")[1]) == ready
    assert json.loads(server.get("/v2")[1])["name"] == "bifocal"
    assert server.get("/v2/")[1] == server.get("/v2")[1]  # the path of the protocol's OpenAPI
    information = json.loads(server.get("/api/v1/info")[1])
    assert json.loads(server.get("/v2/models/bifocal")[1]) == {
        "name": "bifocal",
        "versions": [information["model_hash"]],
        "platform": "onnx_onnxv1",
        "inputs": [
            {"name": name, "datatype": "BYTES", "shape": [-1]} for name in ("text", "image")
        ],
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, 192]}],
        "parameters": {
            "max_elements": 20_000,
            "max_depth": 16,
            "max_rows": 4096,
            "max_body_bytes": 20_000_000,
        },
    }
    version = f"/v2/models/bifocal/versions/{information['model_hash']}"
    assert server.get(version)[1] == server.get("/v2/models/bifocal")[1]
    assert json.loads(server.get(f"{version}/ready")[1]) == ready
    assert server.get("/v2/models/bifocal/versions/1")[0] == 404
    assert server.get("/v2/models/other")[0] == server.get("/v2/models/other/ready")[0] == 404


def test_embeddings_equal_the_library(server: Server, demo: TrainedModel) -> None:
    texts = [f"{number} red stars" for number in range(70)]
    paths = [Path(str(demo.collection.image(row))) for row in range(9)]
    images = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    expected = {"text": demo.encode_text(texts), "image": demo.encode_image(paths)}
    for name, data in (("text", texts), ("image", images)):
        for shaped in (given(name, data), given(name, [[value] for value in data], [len(data), 1])):
            request = {
                "id": "7",
                "parameters": {"priority": 1},
                "inputs": [shaped],
                "outputs": [{"name": "embedding"}],
            }
            status, answer = infer(server, **request)
            assert status == 200, answer
            (output,) = answer["outputs"]
            assert (answer["id"], answer["model_name"]) == ("7", "bifocal")
            assert (output["name"], output["datatype"], output["shape"]) == (
                "embedding",
                "FP32",
                [len(data), 192],
            )
            np.testing.assert_allclose(
                np.reshape(output["data"], output["shape"]), expected[name], atol=1e-5
            )


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
    (b"1,", b"1"),
    (b"[],", b"[]"),
    (b"[1],", b"[1]"),
    (b'{"a":0},', b"0"),
    (b'"",', b"0"),
    (b"[", b""),
    (b'"\\\\",', b"0"),
    (b'"a\\"b",', b"0"),
    (b'\\"', b""),
    (b'"', b""),
]


def binary(
    strings: list[bytes], outputs: list[dict[str, Any]], name: str = "text"
) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a request with one binary input."""
    data = b"".join(struct.pack("<I", len(string)) + string for string in strings)
    shaped = {
        "name": name,
        "shape": [len(strings)],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [shaped], "outputs": outputs}).encode()
    return head + data, {"Inference-Header-Content-Length": str(len(head))}


def test_binary_tensors_and_bodies_without_a_type_are_read(
    server: Server, demo: TrainedModel
) -> None:
    texts = ["a red star", "two blue circles"]
    expected = demo.encode_text(texts)
    wanted = {"name": "embedding", "parameters": {"binary_data": True}}
    body, headers = binary([text.encode() for text in texts], [wanted])
    status, answer, found = server.request("POST", INFER, body, headers)
    assert status == 200, answer
    length = int(found.headers["inference-header-content-length"])
    (output,) = json.loads(answer[:length])["outputs"]
    assert (output["shape"], output["parameters"]) == ([2, 192], {"binary_data_size": 2 * 192 * 4})
    vectors = np.frombuffer(answer[length:], "<f4").reshape(output["shape"])
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    status, answer, _ = server.request(
        "POST", INFER, json.dumps({"inputs": [given("text", texts)]}).encode(), {}
    )
    assert status == 200, answer
    content = json.loads(answer)
    assert "id" not in content
    np.testing.assert_allclose(
        np.reshape(content["outputs"][0]["data"], (2, 192)), expected, atol=1e-5
    )


def test_wrong_binary_bodies_and_unknown_outputs_are_answered_with_400(server: Server) -> None:
    body, headers = binary([b"a star"], [])
    (key,) = headers
    wrong = [
        (body + b"x", headers),
        (body[:-1], headers),
        (body, {key: "-1"}),
        (body, {key: "999999"}),
        (b"[1]", {key: "3"}),
        binary([b"\xff\xfe"], []),
        binary([b"a star"], [{"name": "another"}]),
        (b"{", {key: "1"}),
        (b"", {key: "0"}),
        (b"\xff", {key: "1"}),
        (b"9" * 5000, {key: "5000"}),
        (body, {key: "\xb2"}),
        (body, {key: "9" * 5000}),
        binary([b"\x01" * 40_001], []),
        (body.replace(b'"parameters": {"binary_data_size": 10}', b'"parameters": null'), headers),
        (body.replace(b'"parameters": {"binary_data_size": 10}', b'"parameters": [] '), headers),
        *(
            binary([b"a star"], [{"name": "embedding", "parameters": value}])
            for value in ("x", [1], 1, True)
        ),
        (b'{"id": "\\ud800", "inputs": []}', {}),
        (b'{"id": "\\uDC00\\ud800", ' + b" " * 5000 + b'"inputs": []}', {}),
        (b"]" * 5000, {}),
        (b"9" * 5000, {}),
    ]
    for content, given_headers in wrong:
        status, answer, _ = server.request("POST", INFER, content, given_headers)
        assert status == 400, answer


@pytest.mark.real
def test_a_client_of_triton_gets_the_embeddings(server: Server, demo: TrainedModel) -> None:
    http = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
    assert client.is_server_live()
    assert client.is_model_ready("bifocal")
    texts = np.array(["a red star", "two blue circles"], object)
    for is_binary in (True, False):
        sent = http.InferInput("text", [2], "BYTES")
        sent.set_data_from_numpy(texts, binary_data=is_binary)
        wanted = [http.InferRequestedOutput("embedding", binary_data=is_binary)]
        for outputs in (wanted, None):
            found = client.infer("bifocal", [sent], outputs=outputs).as_numpy("embedding")
            np.testing.assert_allclose(found, demo.encode_text(texts.tolist()), atol=1e-5)
