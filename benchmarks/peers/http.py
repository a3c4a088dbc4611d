"""What does the vector of a sentence cost by HTTP, beside MLflow's model server and a bare FastAPI
application?

    make peers ONLY=http

CPU time of the server's processes for 200 sentences over loopback, each with a request of its own,
from 1 and from 8 clients. All three servers have the model of the demo, and 'bifocal serve' answers
by the protocol of KServe. FastAPI calls the same encoder as in its tutorial: a floor, without
limits, checks, turns of clients and metrics.
"""

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import numpy as np

import bifocal
from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from benchmarks.service_load import Service
from pipelines.app.demo import unpack
from tests.mlflow_server import free_port

CLIENTS, SENTENCES = (1, 8), 200
FASTAPI = """
import sys
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
import bifocal
model, app = bifocal.load(sys.argv[1]), FastAPI()
class Sentence(BaseModel):
    text: str
@app.get("/readyz")
def ready():
    return {}
@app.post("/embed")
def embed(sentence: Sentence):
    return {"vector": model.encode_text([sentence.text])[0].tolist()}
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
"""
MLFLOW = "import sys; from mlflow.cli import cli; cli(['models', 'serve', *sys.argv[1:]])"
Request = Callable[[str], dict[str, Any]]
PEERS: dict[str, tuple[str, Request, Callable[[Any], list[float]]]] = {
    "bifocal": (
        "/v2/models/bifocal/infer",
        lambda text: {
            "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]
        },
        lambda answer: list(answer["outputs"][0]["data"]),
    ),
    "mlflow": (
        "/invocations",
        lambda text: {"dataframe_records": [{"text": text}]},
        lambda answer: list(answer["predictions"][0]["embedding"]),
    ),
    "fastapi": ("/embed", lambda text: {"text": text}, lambda answer: list(answer["vector"])),
}
"""Path, body for a sentence, and vector of an answer."""


async def vectors(
    port: int, peer: str, sentences: Sequence[str], clients: int
) -> list[list[float]]:
    """Return the vectors of all sentences; each client keeps its connection."""
    path, request, vector_of = PEERS[peer]
    found: list[list[float]] = [[] for _ in sentences]

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for place in range(number, len(sentences), clients):
            body = json.dumps(request(sentences[place])).encode()
            head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
            found[place] = vector_of(json.loads(await reader.readexactly(length)))
        writer.close()

    await asyncio.gather(*map(client, range(clients)))
    return found


def ask(service: Service, peer: str, sentences: Sequence[str], clients: int) -> list[list[float]]:
    """Return the vectors of all sentences."""
    return asyncio.run(vectors(service.port, peer, sentences, clients))


def server_seconds(call: Any) -> float:
    """Return the CPU time of a server for a call of ``ask``."""
    service = call.args[0]
    before = service.cpu_seconds()
    call()
    return float(service.cpu_seconds() - before)


def main() -> None:
    """Compare the servers."""
    report = Report("peers.http")
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        run = unpack(folder / "run").directory
        model = bifocal.load(run)
        texts = [
            text for row in range(len(model.collection)) for text in model.collection.captions(row)
        ][:SENTENCES]
        mlflow.pyfunc.save_model(
            folder / "model",
            loader_module="runtime.mlflow.served_model",
            data_path=str(run / "artifacts" / "onnx"),
        )
        ports = [free_port() for _ in PEERS]
        served = ["-m", str(folder / "model"), "--port", str(ports[1]), "--env-manager", "local"]
        commands = [
            (None, "/readyz"),
            ([sys.executable, "-c", MLFLOW, *served], "/ping"),
            ([sys.executable, "-c", FASTAPI, str(run), str(ports[2])], "/readyz"),
        ]
        services = [
            stack.enter_context(Service(run, port, folder / f"{port}.log", *command))
            for port, command in zip(ports, commands, strict=True)
        ]
        calls = [
            partial(ask, service, peer, texts)
            for service, peer in zip(services, PEERS, strict=True)
        ]
        for call in calls:
            np.testing.assert_allclose(call(1), model.encode_text(texts), atol=1e-4)
        for clients in CLIENTS:
            for peer, theirs in list(zip(PEERS, calls, strict=True))[1:]:
                work = f"{len(texts)} vectors by HTTP, {clients} client{'s' if clients > 1 else ''}"
                peer = f"{peer} (floor)" if peer == "fastapi" else peer
                compare(
                    report,
                    work,
                    peer,
                    partial(calls[0], clients),
                    partial(theirs, clients),
                    clock=server_seconds,
                )
    write(report)


if __name__ == "__main__":
    main()
