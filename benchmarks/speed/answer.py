"""What does an answer of ``bifocal serve`` cost, relative to its parts?

    python -m benchmarks run speed.answer [--run FOLDER] [--answers 400]

Eight clients search by captions, each with one request after the other: for 24 results, over
loopback. The floor is the sum of a bare Starlette server that answers as many bytes, of the text
encoder on batches of eight sentences, and of ``Search``. Both servers answer in turn; CPU times are
medians over five rounds.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import bifocal
from benchmarks.common import Report, cpu_seconds, load
from benchmarks.service_load import Service, search
from bifocal.search import Search
from pipelines.app.demo import unpack
from tests.mlflow_server import free_port

CLIENTS, ROUNDS, RESULTS = 8, 5, 24
BARE = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
content = open(sys.argv[2], "rb").read()
async def answer(request):
    await request.body()
    return Response(content, media_type="application/json")
routes = [Route("/api/v1/search", answer, methods=["POST"]), Route("/readyz", answer)]
uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


async def answers(port: int, sentences: list[str], count: int) -> bytes:
    """Search with all clients until ``count`` answers have arrived; return one answer."""

    async def client(number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for place in range(number, count, CLIENTS):
            status, found = await search(reader, writer, sentences[place % len(sentences)])
            assert status == 200, found
        writer.close()
        return found

    return (await asyncio.gather(*map(client, range(CLIENTS))))[0]


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, help="run folder; default: the folder of 'bifocal demo'"
    )
    parser.add_argument(
        "--answers", type=int, default=400, help="answers of each server in a round"
    )
    options = parser.parse_args()
    report = Report("speed.answer")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, ports = Path(name), (free_port(), free_port())
        run = options.run or unpack(folder / "run").directory
        model = bifocal.load(run)
        sentences = sorted(
            {
                text
                for row in range(len(model.collection))
                for text in model.collection.captions(row)
            }
        )
        serve = stack.enter_context(Service(run, ports[0], folder / "serve.log"))
        (folder / "answer").write_bytes(asyncio.run(answers(ports[0], sentences, options.answers)))
        command = [sys.executable, "-c", BARE, str(ports[1]), str(folder / "answer")]
        bare = stack.enter_context(Service(run, ports[1], folder / "bare.log", command))
        vectors = model.encode_text(sentences[:CLIENTS])
        index, times = Search(model.index), list[list[float]]()
        for _ in range(ROUNDS):
            seconds = []
            for server in (serve, bare):
                before = server.cpu_seconds()
                asyncio.run(answers(server.port, sentences, options.answers))
                seconds.append((server.cpu_seconds() - before) / options.answers)
            seconds.append(cpu_seconds(lambda: model.encode_text(sentences[:CLIENTS])) / CLIENTS)
            seconds.append(
                cpu_seconds(
                    lambda: [
                        index.batch(vector[None], RESULTS, sentences=True) for vector in vectors
                    ]
                )
                / CLIENTS
            )
            times.append(seconds)
    whole, *parts = 1000 * np.median(times, axis=0)
    report.add(
        f"CPU time of an answer with {RESULTS} results, relative to its parts",
        whole / sum(parts),
        at_most=3.0,
        reference=f"{whole:.2f} ms; {parts[0]:.3f} server, {parts[1]:.3f} encoder, "
        f"{parts[2]:.3f} search; {load()}",
    )
    report.write()


if __name__ == "__main__":
    main()
