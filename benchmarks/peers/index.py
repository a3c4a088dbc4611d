"""How does search in 100,000 vectors compare with faiss, hnswlib and usearch, and in 20,000 with
Qdrant?

    make peers

Vectors of 256 dimensions from clusters like those of image embeddings, on one core. Each index
searches with the smallest effort whose recall@10 is 95 %. Then single queries are timed. Each index
is built once. The floor is the inverted file of faiss that the index of the project contains, with
codes of 8 bits for a second look at the candidates.
Qdrant runs in its local mode. It compares all vectors, as the index of the project does by default
for 20,000.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import faiss
import hnswlib
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from qdrant_client import QdrantClient
from qdrant_client.models import Distance, VectorParams
from usearch.index import Index

from benchmarks.common import Report, cpu_seconds
from benchmarks.peers.compare import compare, write
from benchmarks.speed.search import Distribution, basis_of, embeddings
from bifocal.search import Search, SearchIndex
from bifocal.search.index.build import IndexSettings, build_index, recall_at

ITEMS, FEW, DIM, K, RECALL = 100_000, 20_000, 256, 10, 0.95
FACTORY = "IVF505,PQ128x4fs"
EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
Vectors = NDArray[np.float32]
Peer = tuple[Callable[[Vectors], NDArray[np.int64]], Callable[[int], None]]
"""A search of queries, and a setter of its effort."""


def main() -> None:
    """Compare the indexes."""
    faiss.omp_set_num_threads(1)
    report = Report("peers.index")
    large = {
        "faiss-cpu HNSW": faiss_hnsw,
        "hnswlib": hnsw,
        "usearch": usearch,
        "faiss-cpu IVF (floor)": faiss_ivf,
    }
    compare_indexes(report, ITEMS, FACTORY, large)
    compare_indexes(report, FEW, None, {"qdrant-client": qdrant})
    write(report)


def compare_indexes(
    report: Report, items: int, factory: str | None, peers: Mapping[str, Callable[[Vectors], Peer]]
) -> None:
    """Compare the index of the project over so many items; without a factory it is exact, as it is
    by default."""
    images, captions = embeddings(None)
    basis = basis_of(images, DIM)
    vectors: Vectors = np.concatenate(list(Distribution(images, basis).draw(items, seed=1)))
    asked = Distribution(captions, basis)
    queries, test = (np.concatenate(list(asked.draw(1000, seed=seed))) for seed in (2, 3))
    names = pa.table({"item_id": pa.array(map(str, range(items)), pa.string())})
    flat = faiss.IndexFlatIP(DIM)
    flat.add(vectors)
    truth = flat.search(test, K)[1]

    built: list[SearchIndex] = []

    def build_own() -> None:
        exact = SearchIndex(names, vectors.astype(np.float16))
        settings = None if factory is None else IndexSettings(factory, recall=RECALL)
        built.append(exact if settings is None else build_index(exact, settings, queries))

    own = cpu_seconds(build_own)
    search = partial(Search(built[0]).batch, k=K)
    for name, build in peers.items():
        made: list[Peer] = []
        other = cpu_seconds(partial(_append, made, build, vectors))
        find, set_effort = made[0]
        for effort in EFFORTS:
            set_effort(effort)
            reached = recall_at(truth, find(test))
            if reached >= RECALL:
                break
        ours, theirs = (partial(_one_by_one, each, test) for each in (search, find))
        compare(report, f"search, {items:,} items", name, ours, theirs)
        report.add(
            f"building, {items:,} items: {name}",
            other / own,
            "times",
            at_least=None if "floor" in name else 1.0,
            reference=f"{own:.1f}, {other:.1f} s; recall@10 {reached:.3f}",
        )


def _append(found: list[Peer], build: Callable[[Vectors], Peer], vectors: Vectors) -> None:
    found.append(build(vectors))


def _one_by_one(find: Callable[[Vectors], object], queries: Vectors) -> None:
    for query in queries[:200]:
        find(query[None])


def faiss_hnsw(vectors: Vectors) -> Peer:
    """Return a search and a setter of its effort."""
    index = faiss.IndexHNSWFlat(DIM, 32, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors)
    return lambda queries: index.search(queries, K)[1], lambda effort: setattr(
        index.hnsw, "efSearch", effort
    )


def faiss_ivf(vectors: Vectors) -> Peer:
    """Return a search and a setter of its effort."""
    index: Any = faiss.index_factory(DIM, f"{FACTORY},Refine(SQ8)", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    index.k_factor = 4
    inverted = faiss.extract_index_ivf(index.base_index)
    return lambda queries: index.search(queries, K)[1], lambda effort: setattr(
        inverted, "nprobe", effort
    )


def qdrant(vectors: Vectors) -> Peer:
    """Return a search without an effort."""
    client = QdrantClient(":memory:")
    client.create_collection("items", vectors_config=VectorParams(size=DIM, distance=Distance.DOT))
    client.upload_collection("items", vectors=vectors, ids=range(len(vectors)))

    def find(queries: Vectors) -> NDArray[np.int64]:
        found = (client.query_points("items", query=query, limit=K).points for query in queries)
        return np.array([[point.id for point in points] for points in found], np.int64)

    return find, lambda effort: None


def hnsw(vectors: Vectors) -> Peer:
    """Return a search and a setter of its effort."""
    index = hnswlib.Index("ip", DIM)
    index.init_index(len(vectors), ef_construction=200, M=16)
    index.set_num_threads(1)
    index.add_items(vectors, num_threads=1)
    return lambda queries: index.knn_query(queries, K, num_threads=1)[0].astype(
        np.int64
    ), index.set_ef


def usearch(vectors: Vectors) -> Peer:
    """Return a search and a setter of its effort."""
    index = Index(ndim=DIM, metric="ip")
    index.add(np.arange(len(vectors)), vectors, threads=1)

    def find(queries: Vectors) -> NDArray[np.int64]:
        keys = index.search(queries, K, threads=1).keys
        return np.atleast_2d(keys).astype(np.int64)

    return find, lambda effort: setattr(index, "expansion_search", effort)


if __name__ == "__main__":
    main()
