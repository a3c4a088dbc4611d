"""How does search in 100,000 vectors compare with faiss, hnswlib and usearch?

    make peers

100,000 vectors of 256 dimensions from clusters like those of image embeddings, on one core. Each index
searches with the smallest effort whose recall@10 is 95 %. Then single queries are timed. Each index is built once.
"""

from collections.abc import Callable
from functools import partial

import faiss
import hnswlib
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from usearch.index import Index

from benchmarks.common import Report, cpu_seconds
from benchmarks.peers.compare import compare, write
from benchmarks.speed.search import Distribution, basis_of, embeddings
from bifocal.search import Search, SearchIndex
from bifocal.search.index.approximate import choose_factory
from bifocal.search.index.build import IndexSettings, build_index, recall_at

ITEMS, DIM, K, RECALL = 100_000, 256, 10, 0.95
EFFORTS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
Vectors = NDArray[np.float32]
Peer = tuple[Callable[[Vectors], NDArray[np.int64]], Callable[[int], None]]
"""A search of queries, and a setter of its effort."""


def main() -> None:
    """Compare the indexes."""
    faiss.omp_set_num_threads(1)
    report = Report("peers.index")
    images, captions = embeddings(None)
    basis = basis_of(images, DIM)
    vectors: Vectors = np.concatenate(list(Distribution(images, basis).draw(ITEMS, seed=1)))
    asked = Distribution(captions, basis)
    queries, test = (np.concatenate(list(asked.draw(1000, seed=seed))) for seed in (2, 3))
    names = pa.table({"item_id": pa.array(map(str, range(ITEMS)), pa.string())})
    exact = SearchIndex(names, vectors.astype(np.float16))
    flat = faiss.IndexFlatIP(DIM)
    flat.add(vectors)
    truth = flat.search(test, K)[1]

    built: list[SearchIndex] = []
    factory = choose_factory(ITEMS, DIM, 1200, 5) or "IVF1264,SQ8"
    own = cpu_seconds(lambda: built.append(build_index(exact, IndexSettings(factory, recall=RECALL), queries)))
    search = partial(Search(built[0]).batch, k=K)
    for name, build in (("faiss-cpu HNSW", faiss_hnsw), ("hnswlib", hnsw), ("usearch", usearch)):
        made: list[Peer] = []
        other = cpu_seconds(partial(_append, made, build, vectors))
        find, set_effort = made[0]
        for effort in EFFORTS:
            set_effort(effort)
            reached = recall_at(truth, find(test))
            if reached >= RECALL:
                break
        ours, theirs = (partial(_one_by_one, each, test) for each in (search, find))
        compare(report, f"search, {ITEMS:,} items", name, ours, theirs)
        report.add(
            f"building, {ITEMS:,} items: {name}", other / own, "times", at_least=1.0,
            reference=f"{own:.1f}, {other:.1f} s; recall@10 {reached:.3f}",
        )  # fmt: skip
    write(report)


def _append(found: list[Peer], build: Callable[[Vectors], Peer], vectors: Vectors) -> None:
    found.append(build(vectors))


def _one_by_one(find: Callable[[Vectors], object], queries: Vectors) -> None:
    for query in queries[:200]:
        find(query[None])


def faiss_hnsw(vectors: Vectors) -> Peer:
    """Return a search and a setter of its effort."""
    index = faiss.IndexHNSWFlat(DIM, 32, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors)
    return lambda queries: index.search(queries, K)[1], lambda effort: setattr(index.hnsw, "efSearch", effort)


def hnsw(vectors: Vectors) -> Peer:
    """Return a search and a setter of its effort."""
    index = hnswlib.Index("ip", DIM)
    index.init_index(len(vectors), ef_construction=200, M=16)
    index.set_num_threads(1)
    index.add_items(vectors, num_threads=1)
    return lambda queries: index.knn_query(queries, K, num_threads=1)[0].astype(np.int64), index.set_ef


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
