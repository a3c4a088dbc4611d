"""Approximate indexes, their measurements, and changes of an index."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from bifocal.search import Search, SearchIndex
from bifocal.search.index.approximate import ApproximateIndex, choose_factory
from bifocal.search.index.build import IndexSettings, build_index, measure, recall_at
from bifocal.search.index.exact import unit_vectors
from tests.margins import margin

D = 16
PROBES = IndexSettings("IVF24,SQ8", recall=0.99)


def clusters(count: int, seed: int) -> NDArray[np.float64]:
    centers = np.random.default_rng(0).normal(size=(40, D))
    random = np.random.default_rng(seed)
    return centers[random.integers(40, size=count)] + 0.4 * random.normal(size=(count, D))


@pytest.fixture(scope="module")
def queries() -> NDArray[np.float64]:
    return clusters(60, seed=1)


@pytest.fixture(scope="module")
def exact() -> SearchIndex:
    index = SearchIndex.of([f"image {row}" for row in range(2000)], clusters(2000, seed=2))
    items = index.items.append_column("meta.part", pa.array(np.arange(2000) % 50))
    bias = 0.05 * np.random.default_rng(3).normal(size=2000).astype(np.float32)
    return SearchIndex(items, index.vectors, bias)


@pytest.fixture(scope="module")
def inverted(exact: SearchIndex, queries: NDArray[np.float64]) -> SearchIndex:
    return build_index(exact, PROBES, queries)


def rows(
    index: SearchIndex, queries: NDArray[np.float64], where: dict[str, Any] | None = None
) -> list[list[int]]:
    return [
        [hit.row for hit in hits]
        for hits in Search(index).batch(queries, 10, sentences=True, where=where)
    ]


def overlap(a: list[list[int]], b: list[list[int]]) -> float:
    return sum(len(set(x) & set(y)) for x, y in zip(a, b, strict=True)) / sum(map(len, a))


@pytest.mark.parametrize(
    "factory",
    [
        *("IVF24,SQ8", "IVF24,PQ8x4fs", "IVF24,PQ8x4", "HNSW16", "SQ8", "Cut12,SQ8"),
        pytest.param("OPQ8,IVF24,PQ8x4", marks=pytest.mark.slow),
    ],
)
def test_an_approximate_index_has_the_wanted_recall_with_exact_scores(
    factory: str, exact: SearchIndex, queries: NDArray[np.float64], tmp_path: Path
) -> None:
    index = build_index(exact, replace(PROBES, factory=factory), queries)
    index.write(tmp_path)
    opened = SearchIndex.open(tmp_path)
    measured = measure(opened, queries, tmp_path)
    assert measured.recall_at_10 == pytest.approx(
        overlap(rows(exact, queries), rows(opened, queries))
    )
    assert measured.recall_at_10 >= PROBES.recall
    assert measured.queries == 60
    assert 0 < measured.p50_ms <= measured.p99_ms
    assert (
        measured.bytes
        == sum(file.stat().st_size for file in tmp_path.iterdir())
        - (tmp_path / "index.json").stat().st_size
    )
    by_row = {hit.row: hit.score for hit in Search(exact).batch(queries[:1], 2000)[0]}
    assert all(hit.score == by_row[hit.row] for hit in Search(opened).batch(queries[:1], 10)[0])


def test_cut_and_binary_indexes_find_the_best_by_first_numbers_and_signs(
    exact: SearchIndex, queries: NDArray[np.float64]
) -> None:
    """Candidates by NumPy; all of them are ranked by the whole vectors."""
    vectors = np.asarray(exact.vectors, dtype=np.float64)
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    cut = vectors[:, :12] / np.linalg.norm(vectors[:, :12], axis=1, keepdims=True)
    equal_signs = np.sign(units) @ np.sign(vectors).T
    for factory, scores in (("Cut12,Flat", units[:, :12] @ cut.T), ("LSH", equal_signs)):
        found = ApproximateIndex.build(vectors, factory).search(units.astype(np.float32), 40, None)
        worst = np.sort(scores, axis=1)[:, -40]
        assert (np.take_along_axis(scores, found, axis=1) >= worst[:, None] - 1e-6).all()
    with pytest.raises(ValueError, match="cuts vectors of 16 numbers to 16"):
        ApproximateIndex.build(vectors, "Cut16,Flat")


def test_the_effort_is_the_least_that_reaches_the_recall() -> None:
    random = np.random.default_rng(0)
    exact = SearchIndex.of([str(row) for row in range(1000)], random.normal(size=(1000, D)))
    queries = random.normal(size=(50, D))
    index = build_index(exact, IndexSettings("IVF15,SQ8", recall=0.7), queries)
    effort, truth = index.description.effort, rows(exact, queries)
    assert index.description.candidates == 5
    lower = {}
    for value in range(1, 16):
        index.description = replace(index.description, effort=value)
        shares = np.array(
            [overlap([a], [b]) for a, b in zip(truth, rows(index, queries), strict=True)]
        )
        lower[value] = shares.mean() - 1.645 * 2**0.5 * shares.std() / 50**0.5
    assert effort == next(value for value in lower if lower[value] >= 0.7)
    assert effort > 1


@pytest.mark.parametrize("parts", [1, 40])
def test_filters_of_few_and_of_many_items_lose_none(
    parts: int, inverted: SearchIndex, exact: SearchIndex, queries: NDArray[np.float64]
) -> None:
    where = {"part": {"max": parts - 1}}
    found, truth = rows(inverted, queries, where=where), rows(exact, queries, where=where)
    assert all(len(hits) == 10 and all(row % 50 < parts for row in hits) for hits in found)
    assert found == truth if parts == 1 else overlap(truth, found) > PROBES.recall - margin(600)
    assert [len(hits) for hits in Search(inverted).batch(queries[:2], 3000, where={"part": 1})] == [
        40,
        40,
    ]


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_filters_away_from_the_queries_keep_the_recall(
    share: float, inverted: SearchIndex, exact: SearchIndex, queries: NDArray[np.float64]
) -> None:
    """The items of the filter are on the other side of a plane, where the index searches few
    lists."""
    side = np.asarray(exact.vectors[:, 0], dtype=np.float64)
    away = pa.array(side < np.quantile(side, share))
    chosen = queries[queries[:, 0] > 0]
    items = exact.items.append_column("meta.away", away)
    filtered = [
        SearchIndex(items, exact.vectors, exact.bias, index.description, index.approximate)
        for index in (exact, inverted)
    ]
    truth, found = (rows(index, chosen, where={"away": True}) for index in filtered)
    assert all(len(hits) == 10 for hits in found)
    assert overlap(truth, found) > PROBES.recall - margin(10 * len(chosen))


@pytest.mark.parametrize("factory", ["IVF24,PQ8x4fs", "IVF24,SQ8", "HNSW16"])
def test_the_candidates_of_a_query_do_not_depend_on_its_company(
    factory: str, exact: SearchIndex, queries: NDArray[np.float64]
) -> None:
    index = ApproximateIndex.build(exact.vectors, factory)
    units = unit_vectors(queries)
    together = index.search(units, 40, 8)
    alone = [index.search(units[row : row + 1], 40, 8)[0] for row in range(len(units))]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("factory", ["exact", "IVF24,PQ8x4fs"])
def test_removed_items_are_not_found(
    factory: str, exact: SearchIndex, queries: NDArray[np.float64], tmp_path: Path
) -> None:
    settings = replace(PROBES, factory=factory)
    gone = [f"image {row}" for row in range(0, 2000, 3)]
    build_index(exact, settings, queries).write(tmp_path)
    changed = SearchIndex.open(tmp_path).without_items(gone)
    assert len(changed) == 2000 - len(gone)
    compact = build_index(changed, settings, queries)
    assert (len(compact), compact.removed.any()) == (len(changed), False)
    (tmp_path / "changed").mkdir()
    changed.write(tmp_path / "changed")
    opened = SearchIndex.open(tmp_path / "changed")
    again = build_index(changed, IndexSettings("exact"), queries)
    truth = [
        [(hit.id, hit.score) for hit in hits]
        for hits in Search(again).batch(queries, 10, sentences=True)
    ]
    for index in (changed, opened, compact):
        results = Search(index).batch(queries, 10, sentences=True)
        found = [[(hit.id, hit.score) for hit in hits] for hits in results]
        assert not {name for hits in found for name, _ in hits} & set(gone)
        recall = sum(len(set(a) & set(b)) for a, b in zip(truth, found, strict=True)) / 600
        assert found == truth if factory == "exact" else recall > PROBES.recall - margin(600)
    assert not opened.vectors[0].any()
    assert opened.items["meta.part"][0].as_py() is None
    with pytest.raises(ValueError, match="no item 'image 0'"):
        opened.vector("image 0")


def test_an_id_that_occurs_twice_is_an_error() -> None:
    with pytest.raises(ValueError, match="3 ids, 2 of them different"):
        SearchIndex.of(["a", "b", "a"], np.eye(3))


def test_settings_that_cannot_be_met_are_errors(
    exact: SearchIndex, queries: NDArray[np.float64]
) -> None:
    with pytest.raises(ValueError, match="faiss cannot build 'IVFx' for 2000 vectors of 16"):
        build_index(exact, replace(PROBES, factory="IVFx"), queries)
    with pytest.raises(
        ValueError, match=r"PQ1x2 finds 0\.\d+ of the exact ten best items with the greatest effort"
    ):
        build_index(exact, IndexSettings("PQ1x2", recall=0.999), queries)
    with pytest.raises(
        ValueError, match=r"1000000 vectors do not fit into 3 MB: .* needs at least 16 MB"
    ):
        choose_factory(1_000_000, 256, memory_mb=3, latency_ms=20)


def test_the_factory_follows_size_memory_and_latency() -> None:
    assert choose_factory(0, 256, 100, 10) is None
    assert choose_factory(10_000, 256, 100, 10) is None
    assert choose_factory(10_000, 256, 5, 10) == "IVF156,PQ128x4fs"
    assert choose_factory(10_000, 255, 5, 10) == "IVF156,SQ8"
    assert choose_factory(10_000, 256, 0.5, 10) == "IVF156,PQ32"
    assert choose_factory(100_000, 256, 100, 1) == "IVF505,PQ128x4fs"


def test_recall_counts_common_rows() -> None:
    assert recall_at(np.array([[1, 2], [3, 4]]), np.array([[2, 9], [4, 3]])) == 0.75
    assert recall_at(np.zeros((3, 0)), np.zeros((3, 0))) == 1.0


def test_an_automatic_index_is_exact_without_faiss(
    exact: SearchIndex, queries: NDArray[np.float64], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = IndexSettings(latency_ms=0)
    assert build_index(exact, settings, queries).description.factory == "IVF31,PQ8x4fs"
    monkeypatch.setattr("bifocal.search.index.build.find_spec", lambda name: None)
    index = build_index(exact, settings, queries)
    assert index.description.factory is None
    assert rows(index, queries) == rows(exact, queries)
