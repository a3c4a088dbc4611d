"""What do exact and approximate search cost?

    OMP_NUM_THREADS=1 python -m benchmarks run speed.search [--run RUN] [--items 1000000]
    [--dimension 256]
        [--factory IVF1024,SQ8]

Items are drawn from 32 clusters with the means and the pooled covariance of image embeddings,
queries likewise from caption embeddings: 1,000 to choose the effort, 3,000 others to measure. The
embeddings come from a run folder with a collection, or from the demo's model (256 scenes).
Dimensions are changed by principal components, or by zeros and a random rotation. Memory is the
peak of a new process that opens the index and searches, with the pages of its mapped files. Latency
and the cost of exact search are times on the core (OMP_NUM_THREADS is 1), so other processes hardly
change them; the wall clock is stated beside them.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.common import Report, cpu_seconds, load
from bifocal.datasets import read_dataset
from bifocal.onnx.encoders import Embedder
from bifocal.search import Search, SearchIndex
from bifocal.search.collection.collection import Collection
from bifocal.search.index.approximate import choose_factory, import_faiss
from bifocal.search.index.build import IndexSettings, build_index, measure
from bifocal.search.index.exact import unit_vectors

DEMO = Path(__file__).parents[2] / "pipelines" / "app" / "demo_model"
CLUSTERS, QUERIES, TEST_QUERIES, BATCH = 32, 1000, 3000, 65_536
REPEATS = 25
SEARCHES = """
import sys
from pathlib import Path
import numpy as np
from benchmarks.common import peak_kilobytes
from bifocal.search import Search, SearchIndex
search = Search(SearchIndex.open(Path(sys.argv[1])))
for query in np.load(sys.argv[2]):
    search.batch(query[None], 10)
print(peak_kilobytes())
"""
Vectors = NDArray[np.float32]


def embeddings(run: Path | None) -> tuple[Vectors, Vectors]:
    """Return the image and caption vectors of a run's model, or of the demo's."""
    if run is None:
        table = json.loads((DEMO / "collection.json").read_text())
        images, onnx = np.load(DEMO / "vectors.npy"), DEMO / "onnx"
        captions = [text for texts in table["captions"] for text in texts]
    else:
        collection, onnx = (
            Collection.open(run / "artifacts" / "collection"),
            run / "artifacts" / "onnx",
        )
        images = collection.vectors[~collection.deleted]
        captions = (
            read_dataset(run / "artifacts" / "dataset")
            .split("val")
            .captions["text"]
            .tolist()[:2000]
        )
    embedder = Embedder(onnx)
    parts = [
        embedder.embed_sentences(captions[start : start + 64])
        for start in range(0, len(captions), 64)
    ]
    return images.astype(np.float32), np.concatenate(parts).astype(np.float32)


class Distribution:
    """Clusters of unit vectors of another dimension, fitted to vectors (n, d).

    Args:
        basis: (d, dimension), maps the vectors to the other dimension.
    """

    def __init__(self, vectors: Vectors, basis: Vectors) -> None:
        mapped = np.ascontiguousarray(vectors @ basis)
        kmeans = import_faiss().Kmeans(basis.shape[1], CLUSTERS, seed=1, min_points_per_centroid=1)
        kmeans.train(mapped)
        nearest = kmeans.index.search(mapped, 1)[1][:, 0]
        self.centers, self.shares = (
            kmeans.centroids,
            np.bincount(nearest, minlength=CLUSTERS) / len(mapped),
        )
        covariance = np.cov((mapped - self.centers[nearest]).T)
        values, directions = np.linalg.eigh(covariance)
        self.map = (directions * np.sqrt(np.maximum(values, 0))).T.astype(np.float32)

    def draw(self, count: int, seed: int) -> Iterator[Vectors]:
        """Yield ``count`` unit vectors in batches."""
        random = np.random.default_rng(seed)
        for start in range(0, count, BATCH):
            size = min(BATCH, count - start)
            noise = random.standard_normal((size, len(self.map)), dtype=np.float32)
            yield unit_vectors(
                self.centers[random.choice(CLUSTERS, size, p=self.shares)] + noise @ self.map
            )


def basis_of(images: Vectors, dimension: int) -> Vectors:
    """Return the map (d, dimension) to principal components, or to a random subspace if
    ``dimension`` is larger."""
    own = images.shape[1]
    if dimension <= own:
        return np.linalg.svd(images, full_matrices=False)[2][:dimension].T
    return np.linalg.qr(np.random.default_rng(0).standard_normal((dimension, own)))[0].T.astype(
        np.float32
    )


def search_memory(folder: Path, queries: Vectors) -> float:
    """Return the peak memory of a new process that opens an index and searches, megabytes of 10^6
    bytes."""
    np.save(folder.parent / "queries.npy", queries)
    arguments = [sys.executable, "-c", SEARCHES, str(folder), str(folder.parent / "queries.npy")]
    done = subprocess.run(
        arguments, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    return int(done.stdout) * 1024 / 1e6


def exact_ratio(index: SearchIndex, queries: Vectors) -> tuple[float, float]:
    """Return the CPU time of an exact top-10 search, and its ratio to the time of the matrix
    product.

    The matrix product reads the same rows in float32, in blocks of 65,536. Search and product run
    in turn. The shortest time of each counts.
    """
    blocks = [
        np.asarray(index.vectors[start : start + BATCH], dtype=np.float32)
        for start in range(0, len(index), BATCH)
    ]

    def product() -> None:
        for block in blocks:
            queries @ block.T

    search, floor = [], []
    for _ in range(REPEATS if len(index) <= 1_000_000 else 3):
        search.append(cpu_seconds(lambda: Search(index).batch(queries, 10)))
        floor.append(cpu_seconds(product))
    return min(search), min(search) / min(floor)


def latencies(index: SearchIndex, queries: Vectors) -> list[float]:
    """Return the time on the core of each query's search, milliseconds."""
    return [1000 * cpu_seconds(partial(Search(index).batch, query[None], 10)) for query in queries]


def main() -> None:
    """Report recall, latency, memory and building time, and the cost of exact search."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, help="run folder with a collection; by default the demo's model"
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument(
        "--factory", help="index_factory string of faiss; default: choose_factory decides"
    )
    options = parser.parse_args()
    images, captions = embeddings(options.run)
    basis = basis_of(images, options.dimension)
    items, asked = Distribution(images, basis), Distribution(captions, basis)
    queries = np.concatenate(list(asked.draw(QUERIES, seed=2)))
    shape, report = f"{options.items:,} x {options.dimension}", Report("speed.search")
    large = options.items >= 5_000_000
    factory = (
        options.factory
        or choose_factory(options.items, options.dimension, 3000 if large else 1200, 5)
        or "exact"
    )
    with tempfile.TemporaryDirectory() as folder:
        raw, target = Path(folder) / "raw", Path(folder) / "index"
        target.mkdir()
        with raw.open("wb") as file:
            for batch in items.draw(options.items, seed=1):
                file.write(batch.astype(np.float16).tobytes())
        vectors = np.memmap(
            raw, dtype=np.float16, mode="r", shape=(options.items, options.dimension)
        )
        exact = SearchIndex(
            pa.table({"item_id": pa.array(map(str, range(options.items)), pa.string())}), vectors
        )
        seconds, ratio = exact_ratio(exact, queries[:100])
        report.add(
            f"{shape}: exact top 10 of 100 queries, relative to the product",
            ratio,
            at_most=1.3,
            reference=f"{seconds:.2f} s, {load()}",
        )
        wanted = 0.90 if large else 0.95
        start, on_core = time.perf_counter(), time.process_time()
        built = build_index(exact, IndexSettings(factory, recall=wanted), queries)
        built.write(target)
        report.add(
            f"{shape}, {factory}: building",
            time.process_time() - on_core,
            "s",
            reference=f"effort {built.description.effort}, wall clock "
            f"{time.perf_counter() - start:.0f} s, {load()}",
        )
        test = np.concatenate(list(asked.draw(TEST_QUERIES, seed=3)))
        measured = measure(SearchIndex.open(target), test, target)
        report.add(f"{shape}, {factory}: recall@10", measured.recall_at_10, at_least=wanted)
        times = latencies(SearchIndex.open(target), test)
        report.add(
            f"{shape}, {factory}: latency, p50",
            float(np.percentile(times, 50)),
            "ms",
            at_most=15 if large else 5,
            reference=f"wall clock {measured.p50_ms:.1f} ms, {load()}",
        )
        report.add(
            f"{shape}, {factory}: latency, p99",
            float(np.percentile(times, 99)),
            "ms",
            reference=f"wall clock {measured.p99_ms:.1f} ms, {load()}",
        )
        report.add(f"{shape}, {factory}: files", measured.bytes / 1e6, "MB")
        memory = search_memory(target, test)
        report.add(
            f"{shape}, {factory}: memory when searching",
            memory,
            "MB",
            at_most=3000 if large else 1200,
        )
    report.write()


if __name__ == "__main__":
    main()
