"""Items that a sentence describes, and a calibration by them, against loops over all captions."""

from collections import Counter
from math import log, sqrt

import numpy as np
import pyarrow as pa
import pytest

from bifocal.search import SearchIndex
from bifocal.search.calibration import caption_relevance
from bifocal.search.calibration.calibration import DEPTH
from bifocal.search.calibration.caption_relevance import NEAR, near_rows, relevant_rows
from bifocal.search.calibration.fitting import first_results

CAPTIONS = [
    ["a dog runs on grass", "a brown dog on the grass"],
    ["two dogs play on grass", "dogs play"],
    [],
    ["the sea", "waves of the sea", "a ship on the sea"],
    ["a dog runs on the grass"],
]
SENTENCES = ["a dog on grass", "a ship", "nothing known here"]
OWN = [1, 3, 2]


@pytest.fixture
def captions_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caption_relevance, "CAPTIONS", 1)


def index_of(captions: list[list[str]], vectors: np.ndarray | None = None) -> SearchIndex:
    items = pa.table({"item_id": [str(row) for row in range(len(captions))], "captions": captions})
    return SearchIndex(
        items, np.eye(len(captions), dtype=np.float16) if vectors is None else vectors
    )


def cosine(first: dict[str, float], second: dict[str, float]) -> float:
    return sum(value * second.get(word, 0.0) for word, value in first.items())


def expected_rows(level: float | None = None) -> list[list[int]]:
    """Return the rows by the definition: tf-idf with logarithms of counts, and the median of the
    best siblings."""
    texts = [text for texts in CAPTIONS for text in texts]
    words = {
        text: Counter(word for word in text.split() if len(word) > 1)
        for text in [*texts, *SENTENCES]
    }
    documents = Counter(word for text in texts for word in words[text])

    def vector(text: str) -> dict[str, float]:
        known = {word: 1 + log(count) for word, count in words[text].items() if word in documents}
        weights = {
            word: tf * (1 + log((1 + len(texts)) / (1 + documents[word])))
            for word, tf in known.items()
        }
        norm = sqrt(sum(value**2 for value in weights.values())) or 1.0
        return {word: value / norm for word, value in weights.items()}

    best = [
        max(cosine(vector(text), vector(other)) for other in texts if other != text)
        for texts in CAPTIONS
        for text in texts
        if len(texts) > 1
    ]
    level = float(np.median(best)) if level is None else level
    return [
        sorted(
            {row}
            | {
                number
                for number, texts in enumerate(CAPTIONS)
                if any(cosine(vector(sentence), vector(text)) >= level for text in texts)
            }
        )
        for sentence, row in zip(SENTENCES, OWN, strict=True)
    ]


def test_a_sentence_describes_items_with_a_similar_caption() -> None:
    items = pa.table({"item_id": [str(row) for row in range(5)], "captions": CAPTIONS})
    found = [rows.tolist() for rows in relevant_rows(items, SENTENCES, OWN)]
    assert found == expected_rows()
    assert found[0] == [0, 1, 4]
    assert found[2] == [2]


@pytest.mark.usefixtures("captions_suffice")
def test_a_sentence_comes_near_items_that_share_a_rare_word() -> None:
    index, sentences = index_of(CAPTIONS), ["a white dog swims", "a ship", "nothing known here"]
    near = [rows.tolist() for rows in near_rows(index, sentences, OWN)]
    assert near == [[0, 1, 4], [3], [2]]
    assert [rows.tolist() for rows in near_rows(index, SENTENCES, OWN)] == expected_rows(NEAR)


@pytest.mark.parametrize(("captions", "similar"), [(1, 2), (2, 1), (3, 1), (4, 0), (5, 0)])
def test_similar_images_take_the_place_of_missing_captions(captions: int, similar: int) -> None:
    random = np.random.default_rng(0)
    vectors = random.normal(size=(100, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    words = [f"thing{row // 10}" for row in range(100)]
    index = index_of([[word] * captions for word in words], vectors.astype(np.float32))
    index.removed[:3] = True
    cosines = vectors @ vectors.T
    for row, near in zip((20, 95), near_rows(index, [words[20], words[95]], [20, 95]), strict=True):
        of_captions = {other for other in range(100) if words[other] == words[row]}
        expected = set(of_captions)
        for other in of_captions:
            best = sorted(
                (each for each in range(3, 100) if each != other),
                key=lambda each: -cosines[other, each],
            )
            expected |= set(best[:similar])
        assert near.tolist() == sorted(expected)


def test_similar_images_of_a_large_collection_are_searched_in_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = np.random.default_rng(0)
    centers = np.repeat(np.eye(8), 25, axis=0)
    vectors = centers + 0.05 * random.normal(size=centers.shape)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    index = index_of([[f"thing{row}"] for row in range(200)], vectors)
    index.removed[::7] = True
    live = np.flatnonzero(~index.removed)
    own = live[::10].tolist()
    sentences = [f"thing{row}" for row in own]
    exact = [rows.tolist() for rows in near_rows(index, sentences, own)]
    monkeypatch.setattr(caption_relevance, "CLUSTER", 20)
    clusters = caption_relevance._clusters(index, live)
    assert len(clusters) > 1
    assert np.sort(np.concatenate(clusters)).tolist() == live.tolist()
    found = [rows.tolist() for rows in near_rows(index, sentences, own)]
    assert all(len(rows) == 3 and set(rows) <= set(live.tolist()) for rows in found)
    assert (
        np.mean([row in rows for rows, others in zip(exact, found, strict=True) for row in others])
        > 0.8
    )


@pytest.mark.usefixtures("captions_suffice")
def test_one_shared_word_of_two_long_sentences_brings_an_item_near() -> None:
    """A dog on a beach would otherwise stand for the absence of the dog in the snow of a
    sentence."""
    captions = [
        [
            "a brown dog sleeps beside two old chairs near white umbrellas along some quiet "
            "sandy beach today"
        ]
    ]
    captions += [
        [text]
        for text in (
            "fresh snow",
            "tall trees",
            "red sleds",
            "woods at dusk",
            "children shout loudly",
        )
    ]
    sentence = "dog fresh snow tall trees red sleds woods dusk"
    assert [rows.tolist() for rows in near_rows(index_of(captions), [sentence], [5])] == [
        [0, 1, 2, 3, 4, 5]
    ]


@pytest.mark.parametrize("captions", [None, [[], []], [["!", "?"], []], [["a dog"], ["a dog"]]])
def test_without_captions_to_compare_only_own_items_fit(captions: list[list[str]] | None) -> None:
    columns = {"item_id": ["1", "2"]}
    items = pa.table(
        columns
        if captions is None
        else {**columns, "captions": pa.array(captions, pa.list_(pa.string()))}
    )
    assert [rows.tolist() for rows in relevant_rows(items, ["a dog"], [1])] == [[1]]
    index = SearchIndex(items, np.eye(2, dtype=np.float16))
    if captions is None or not any(captions):
        assert [rows.tolist() for rows in near_rows(index, ["a dog"], [1])] == [[1]]


def test_first_results_leave_out_what_a_query_describes() -> None:
    random = np.random.default_rng(0)
    vectors, queries = random.normal(size=(150, 8)), random.normal(size=(4, 8))
    index = SearchIndex.of([str(row) for row in range(150)], vectors, 0.1 * random.normal(size=150))
    index.removed[:3] = True
    # The third query describes more items than are searched at once, and the last one all but four.
    described = [np.array([5]), np.arange(3, 40), np.arange(20, 145), np.arange(3, 146)]
    scores, relevant = first_results(index, queries, described)
    assert index.bias is not None
    units = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    every = units @ np.asarray(index.vectors, dtype=np.float64).T + index.bias
    for number, rows in enumerate(described):
        order = [row for row in np.argsort(-every[number]) if row >= 3]
        assert relevant[number] == (order[0] in rows)
        others = [row for row in order if row not in rows][:DEPTH]
        others += [others[-1]] * (DEPTH - len(others))
        np.testing.assert_allclose(scores[number], every[number, order[:DEPTH]], atol=1e-6)
        np.testing.assert_allclose(scores[4 + number], every[number, others], atol=1e-6)
    assert not relevant[4:].any()
