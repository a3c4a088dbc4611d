"""What do filters, keywords and deletions cost with a million items?

    OMP_NUM_THREADS=1 python -m benchmarks run speed.million [--items 1000000] [--dimension 256]

Random vectors, captions of ten words from 20,000 by Zipf's law, and one column of metadata, in the
run folder of the demo. Times are CPU times. Two searches that are compared run in turn, and the
medians of their times count, as of five starts. Memory is the memory of a new process without the
pages of mapped files.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.common import ROOT, Report, cpu_seconds, load
from bifocal.onnx.files import model_hash
from bifocal.search import Search, SearchIndex
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.format import (
    DESCRIPTION,
    ITEMS,
    ITEMS_SCHEMA,
    VECTORS,
    Description,
    ModelIdentity,
)
from bifocal.search.index.build import index_of_collection
from bifocal.search.index.exact import unit_vectors
from bifocal.search.keywords import Keywords
from bifocal.search.query import EncodedQuery
from bifocal.search.trained_model import COLLECTION, INDEX, ONNX
from bifocal.serving.service.live import Deletions
from pipelines.app.demo import unpack

BATCH, REPEATS, STARTS, QUERIES, DELETED = 65_536, 15, 5, 30, 100_000
BARRED = 1_000_000
"""Number of items up to which the bars hold."""
OPEN = """
import sys, time
from pathlib import Path
from bifocal.serving.service.models import RunSource
start = time.process_time()
served = RunSource(Path(sys.argv[1])).load()
served.summary, served.newest()
status = Path("/proc/self/status").read_text()
print(time.process_time() - start, start, status.partition("RssAnon:")[2].split()[0])
"""


def write_run(
    folder: Path, count: int, dimension: int, vectors: Iterator[NDArray[np.float32]] | None = None
) -> SearchIndex:
    """Write a collection and its exact index into a run folder of the demo, and return the index.

    ``vectors`` gives unit vectors in blocks of ``BATCH``, by default random ones.
    """
    unpack(folder)
    for file in (folder / INDEX).iterdir():
        file.unlink()
    random, identity = (
        np.random.default_rng(0),
        ModelIdentity("demo", None, model_hash(folder / ONNX)),
    )
    Description(identity, "images", dimension, None, shards=(count,), items=count).write(
        folder / COLLECTION / DESCRIPTION
    )
    shard = np.lib.format.open_memmap(
        folder / COLLECTION / VECTORS / "00000.npy",
        mode="w+",
        dtype=np.float16,
        shape=(count, dimension),
    )
    for start in range(0, count, BATCH):
        block = shard[start : start + BATCH]
        drawn = (
            unit_vectors(random.standard_normal(block.shape, dtype=np.float32))
            if vectors is None
            else next(vectors)
        )
        block[:] = drawn
    rows, zeros, sides = (
        np.arange(count, dtype=np.int32),
        np.zeros(count, np.int32),
        np.full(count, 640, np.int32),
    )
    names = [f"photos/{row:08d}.jpg" for row in rows]
    table = {
        "item_id": names,
        "image": names,
        "sha256": [f"{row:064x}" for row in rows],
        "width": sides,
        "height": sides,
        "shard": zeros,
        "row": rows,
        "deleted": zeros.astype(bool),
        "captions": [[text] for text in sentences(count)],
        "meta.half": rows % 2,
    }
    pq.write_table(
        pa.table(table, schema=pa.schema([*ITEMS_SCHEMA, pa.field("meta.half", pa.int32())])),
        folder / COLLECTION / ITEMS,
    )
    index_of_collection(Collection.open(folder / COLLECTION), None).write(folder / INDEX)
    return SearchIndex.open(folder / INDEX)


def sentences(count: int, words: int = 10) -> list[str]:
    """Return sentences of random words, of which few are frequent."""
    frequency = 1 / np.arange(1, 20_001)
    drawn = np.random.default_rng(1).choice(
        len(frequency), size=(count, words), p=frequency / frequency.sum()
    )
    return [" ".join(f"w{word}" for word in row) for row in drawn.tolist()]


def hybrid(sentence: str, vector: NDArray[np.float64]) -> EncodedQuery:
    """Return the query of a sentence with a given vector."""
    return EncodedQuery.of(sentence, (), (), [], vector[None].astype(np.float32), mode="hybrid")


def medians(*functions: Callable[[], object], repeats: int = REPEATS) -> NDArray[np.float64]:
    """Return the median CPU time of each function, called in turn, milliseconds."""
    if repeats > 1:  # the first call fills caches
        for function in functions:
            function()
    times = [[cpu_seconds(function) for function in functions] for _ in range(repeats)]
    return 1000 * np.median(times, axis=0)


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dimension", type=int, default=256)
    options = parser.parse_args()
    report, shape = Report("speed.million"), f"{options.items:,} x {options.dimension}"

    def bar(value: float) -> float | None:
        return value if options.items <= BARRED else None

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        index = write_run(folder, options.items, options.dimension)
        search, query = (
            Search(index),
            np.random.default_rng(2).standard_normal((1, options.dimension)),
        )
        free, half = medians(
            lambda: search.batch(query), lambda: search.batch(query, where={"half": 1})
        )
        report.add(
            f"{shape}: filter keeping half, relative to no filter",
            half / free,
            at_most=bar(1.1),
            reference=f"{half:.0f} and {free:.0f} ms, {load()}",
        )
        (building,) = medians(lambda: Keywords.of(index.items), repeats=1)
        report.add(f"{shape}: building the keywords, with the index", building / 1000, "s")
        asked, search = sentences(QUERIES + 1, 5), Search(index)
        first = 1000 * cpu_seconds(lambda: search.rank(hybrid(asked[-1], query[0]), 24))
        words, (later,) = (
            index.keywords,
            medians(lambda: [search.rank(hybrid(asked[0], query[0]), 24)]),
        )
        assert words is not None  # of the file
        report.add(
            f"{shape}: first hybrid search", first, "ms", reference=f"later ones {later:.0f} ms"
        )
        (ranked,) = medians(lambda: [words.search(text, 1001) for text in asked[:-1]])
        report.add(f"{shape}: ranking by keywords", ranked / QUERIES, "ms", at_most=bar(5.0))
        gone, file = index.ids[: min(DELETED, options.items // 2)], folder / "deleted.jsonl"
        file.write_text("".join(json.dumps(item_id) + "\n" for item_id in gone))
        deletions = Deletions(file)
        deletions.apply(index)
        (read,) = medians(deletions.read_file)
        report.add(f"{shape}: {len(gone):,} deletions, per search", read, "ms", at_most=bar(0.1))
        command = [sys.executable, "-c", OPEN, str(folder)]
        started = [
            subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
            for _ in range(STARTS)
        ]
        opening, imports, memory = np.median(
            [[*map(float, done.stdout.split())] for done in started], axis=0
        )
        report.add(
            f"{shape}: start of the service",
            opening + imports,
            "s",
            at_most=bar(1.0),
            reference=f"imports {imports:.2f} s; without the check of the hashes",
        )
        report.add(f"{shape}: memory of the service", memory * 1024 / 1e6, "MB", at_most=bar(400))
    report.write()


if __name__ == "__main__":
    main()
