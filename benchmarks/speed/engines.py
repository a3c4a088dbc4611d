"""What do an index of the project and LanceDB cost and find?

    python -m benchmarks run speed.engines [--items 2000000] [--dimension 256] [--factory FACTORY]
    [--folder FOLDER]

The items and queries are drawn as in speed.search. LanceDB imports the files of
``bifocal export --format parquet``. 300 queries choose the effort of an engine, the number of lists
that it searches: the least that finds 95 % of their ten best items. 300 other queries measure the
recall. Times are CPU times of all threads, with the wall clock beside them. Memory is the peak of a
new process that opens the index and searches, with the pages of its mapped files.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow.dataset as ds
from lancedb.index import IvfPq, IvfSq

from benchmarks.common import ROOT, Report, load
from benchmarks.speed.million import write_run
from benchmarks.speed.search import Distribution, Vectors, basis_of, embeddings
from bifocal.search import SearchIndex
from bifocal.search.collection.collection import Collection
from bifocal.search.exports import export_collection
from bifocal.search.index.approximate import choose_factory
from bifocal.search.index.build import IndexSettings, build_index
from bifocal.search.trained_model import COLLECTION

WANTED, CHOICE, QUERIES, REFINED = 0.95, 300, 300, 10
EFFORTS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
Find = Callable[[Vectors, int], list[str]]
"""Returns the ten best items of one query, with an effort."""


def project(folder: Path) -> Find:
    """Open an index of the project."""
    index = SearchIndex.open(folder)
    return lambda query, effort: [index.ids[row] for row in index.nearest(query[None], 10)[0][0]]


def lance(folder: Path) -> Find:
    """Open a table of LanceDB."""
    table: Any = lancedb.connect(folder).open_table("items")

    def find(query: Vectors, effort: int) -> list[str]:
        asked = table.search(query).distance_type("cosine").nprobes(effort).refine_factor(REFINED)
        found: list[str] = (
            asked.limit(10).select(["item_id", "_distance"]).to_arrow()["item_id"].to_pylist()
        )
        return found

    return find


ENGINES = {"project": project, "lance": lance}


def recall(find: Find, queries: Vectors, truth: Sequence[set[str]], effort: int) -> float:
    """Return the mean share of the ten best items that an engine finds."""
    return float(
        np.mean(
            [
                len(best & set(find(query, effort))) / 10
                for query, best in zip(queries, truth, strict=True)
            ]
        )
    )


def search(kind: str, folder: Path, queries: Path, effort: int) -> None:
    """Print the CPU and wall time of each query, milliseconds, and the peak memory of this process,
    megabytes."""
    from benchmarks.common import peak_kilobytes

    find, times = ENGINES[kind](folder), []
    for query in np.load(queries):
        cpu, wall = time.process_time(), time.perf_counter()
        find(query, effort)
        times.append((1000 * (time.process_time() - cpu), 1000 * (time.perf_counter() - wall)))
    print(json.dumps([*np.median(times[10:], axis=0).tolist(), peak_kilobytes() * 1024 / 1e6]))


def compare(
    report: Report, name: str, kind: str, folder: Path, asked: Sequence[Vectors], truth: Any
) -> None:
    """Report what an engine finds and costs."""
    find = ENGINES[kind](folder)
    efforts = EFFORTS if kind == "lance" else (0,)  # the index of the project has chosen its effort
    effort = next(
        (e for e in efforts if recall(find, asked[0], truth[0], e) >= WANTED), efforts[-1]
    )
    report.add(
        f"{name}: recall@10",
        recall(find, asked[1], truth[1], effort),
        reference=f"effort {effort or 'own'}",
    )
    queries = folder.parent / "queries.npy"
    np.save(queries, asked[1])
    command = [
        sys.executable,
        "-m",
        "benchmarks.speed.engines",
        "--search",
        kind,
        str(folder),
        str(queries),
        str(effort),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    cpu, wall, memory = json.loads(done.stdout.splitlines()[-1])
    report.add(
        f"{name}: CPU time of a query, median",
        cpu,
        "ms",
        reference=f"wall clock {wall:.1f} ms, {load()}",
    )
    report.add(f"{name}: memory when searching", memory, "MB")
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
    report.add(f"{name}: files", size, "MB")


def main() -> None:
    """Build the index and the tables of LanceDB, and report what each finds and costs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=2_000_000)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument(
        "--factory", help="index_factory string of faiss; by default what the project chooses"
    )
    parser.add_argument(
        "--folder", type=Path, help="for 10 GB of files; by default a temporary folder"
    )
    parser.add_argument("--search", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.search:
        kind, folder, queries, effort = options.search
        search(kind, Path(folder), Path(queries), int(effort))
        return
    report, shape = Report("speed.engines"), f"{options.items:,} x {options.dimension}"
    default = IndexSettings()
    factory = options.factory or choose_factory(
        options.items, options.dimension, default.memory_mb, default.latency_ms
    )
    assert factory is not None, "the project compares all vectors of so few items: give --factory"
    images, captions = embeddings(None)
    basis = basis_of(images, options.dimension)
    items, texts = Distribution(images, basis), Distribution(captions, basis)
    queries = np.concatenate(list(texts.draw(CHOICE + QUERIES, seed=2)))
    asked = queries[:CHOICE], queries[CHOICE:]
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        exact = write_run(
            folder / "run", options.items, options.dimension, items.draw(options.items, seed=1)
        )
        rows = exact.nearest(queries, 10, exact=True)[0]
        best = [{exact.ids[row] for row in found} for found in rows]
        truth = best[:CHOICE], best[CHOICE:]

        start, cpu = time.perf_counter(), time.process_time()
        index = build_index(exact, IndexSettings(factory, recall=WANTED), asked[0])
        _built(report, f"{shape}, {factory}", start, cpu)
        (folder / "index").mkdir()
        index.write(folder / "index")
        compare(report, f"{shape}, {factory}", "project", folder / "index", asked, truth)

        export_collection(Collection.open(folder / "run" / COLLECTION), folder / "export")
        exported = ds.dataset(folder / "export" / "items.parquet")
        for kind, config in (("IVF_PQ", IvfPq), ("IVF_SQ", IvfSq)):
            table: Any = lancedb.connect(folder / "lance").create_table("items", exported)
            start, cpu = time.perf_counter(), time.process_time()
            table.create_index("vector", config=config(distance_type="cosine"))
            _built(report, f"{shape}, LanceDB {kind}", start, cpu)
            compare(report, f"{shape}, LanceDB {kind}", "lance", folder / "lance", asked, truth)
            shutil.rmtree(folder / "lance")
            report.write()


def _built(report: Report, name: str, start: float, cpu: float) -> None:
    wall = f"wall clock {time.perf_counter() - start:.0f} s, {load()}"
    report.add(f"{name}: building", time.process_time() - cpu, "s", reference=wall)


if __name__ == "__main__":
    main()
