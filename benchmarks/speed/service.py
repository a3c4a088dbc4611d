"""How fast does ``bifocal serve`` answer many clients?

    python -m benchmarks run speed.service [--clients 200] [--seconds 60] [--run FOLDER]

The clients search by captions of the collection over loopback, each with one request after the
other. They share the machine with the service. The floor is the bare text encoder, which encodes
one sentence after the other. Under the same load, the service is killed and started again; then
another service gets a new model and a new collection.
"""

import argparse
import asyncio
import random
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np

import bifocal
from benchmarks.common import Report, load
from benchmarks.service_load import Service, search, under_load
from pipelines.app.demo import unpack
from tests.bifocal.serving.runs import replace_run, write_run
from tests.mlflow_server import free_port

ENCODED = 500
"""Sentences that the bare encoder encodes."""
READY_SECONDS = 10.0
BEFORE, AFTER = 3.0, 3.0
"""Seconds of load before and after the service is killed, or gets a new model."""
REPLACED_SECONDS = 120.0
NEW = "new-"
"""Prefix of the ids of the new collection."""


async def restarted(service: Service) -> float:
    """Kill a service and start it again; return the seconds until it is ready."""
    await asyncio.sleep(BEFORE)
    seconds = await asyncio.to_thread(service.restart)
    await asyncio.sleep(AFTER)
    return seconds


async def replaced(service: Service, run: Path, new: Path) -> float:
    """Replace the model and the collection of a service; return the seconds until its results are
    new.

    Args:
        run: folder that the service reads.
        new: folder of the new run, whose ids start with ``NEW``.

    Raises:
        TimeoutError: the results still come from the previous collection.
    """
    await asyncio.sleep(BEFORE)
    await asyncio.to_thread(replace_run, run, new)
    start = time.monotonic()
    async with asyncio.timeout(REPLACED_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
        while NEW.encode() not in (await search(reader, writer, "a star"))[1]:
            await asyncio.sleep(0.1)
        writer.close()
    seconds = time.monotonic() - start
    await asyncio.sleep(AFTER)
    return seconds


def encoder_latencies(run: Path, sentences: list[str]) -> tuple[list[float], float]:
    """Return the seconds of the text encoder for one sentence at a time, and its mean CPU time in
    seconds."""
    model = bifocal.load(run)
    model.encode_text(sentences[:1])
    found, begin = [], time.process_time()
    for sentence in sentences[:ENCODED]:
        start = time.perf_counter()
        model.encode_text([sentence])
        found.append(time.perf_counter() - start)
    return found, (time.process_time() - begin) / len(found)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--run", type=Path, help="run folder; default: the folder of 'bifocal demo'"
    )
    arguments = parser.parse_args()
    report = Report("speed.service")
    with tempfile.TemporaryDirectory() as folder:
        run = arguments.run or unpack(Path(folder) / "run").directory
        model = bifocal.load(run)
        sentences = sorted(
            {
                text
                for row in range(len(model.collection))
                for text in model.collection.captions(row)
            }
        )
        random.Random(0).shuffle(sentences)
        alone, encoder_cpu = encoder_latencies(run, sentences)
        loaded = partial(under_load, count=arguments.clients, sentences=sentences)
        with Service(run, free_port(), Path(folder) / "log.jsonl") as service:
            before = service.cpu_seconds()
            steady, _ = asyncio.run(loaded(service.port, action=asyncio.sleep(arguments.seconds)))
            service_cpu = (service.cpu_seconds() - before) / len(steady.statuses)
            killed, ready = asyncio.run(loaded(service.port, action=restarted(service)))
            starting = load()
        first = write_run(model, Path(folder) / "first")
        second = write_run(model, Path(folder) / "second", prefix=NEW, sign=-1)
        with Service(first, free_port(), Path(folder) / "replaced.jsonl") as service:
            swapped, new = asyncio.run(
                loaded(service.port, action=replaced(service, first, second))
            )
    p50, p99 = (1000 * np.percentile(steady.latencies, share) for share in (50, 99))
    alone_p50, alone_p99 = (1000 * np.percentile(alone, share) for share in (50, 99))
    clients = f"{arguments.clients} clients, {arguments.seconds:g} s"
    report.add(
        "requests that were not answered with 200",
        steady.failed + steady.broken,
        at_most=0,
        reference=clients,
    )
    report.add(
        "answers per second",
        len(steady.statuses) / arguments.seconds,
        "1/s",
        reference=f"encoder {1000 / alone_p50:.0f}",
    )
    report.add("median latency", p50, "ms", reference=f"encoder {alone_p50:.2f}")
    report.add("99th percentile of the latency", p99, "ms", reference=f"encoder {alone_p99:.2f}")
    report.add(
        "CPU time of an answer",
        1000 * service_cpu,
        "ms",
        reference=f"{service_cpu / encoder_cpu:.0f} times the encoder's {1000 * encoder_cpu:.2f}",
    )
    report.add(
        "ready after SIGKILL",
        ready,
        "s",
        at_most=READY_SECONDS,
        reference=f"clients keep trying, {starting}",
    )
    report.add(
        "answers other than 200 around SIGKILL",
        killed.failed,
        at_most=0,
        reference=f"{killed.broken} broken connections, {len(killed.statuses)} answers",
    )
    report.add(
        "failed requests while model and collection are replaced",
        swapped.failed + swapped.broken,
        at_most=0,
        reference=f"{len(swapped.statuses)} answers, new after {new:.1f} s",
    )
    report.write()


if __name__ == "__main__":
    main()
