"""Items that a sentence describes, and a calibration by them, against loops over all captions."""

from collections import Counter
from math import log, sqrt

import numpy as np
import pyarrow as pa
import pytest

from bifocal.search import SearchIndex
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


def cosine(first: dict[str, float], second: dict[str, float]) -> float:
    return sum(value * second.get(word, 0.0) for word, value in first.items())


def expected_rows(level: float | None = None) -> list[list[int]]:
    """Return the rows by the definition: tf-idf with logarithms of counts, and the median of the best siblings."""
    texts = [text for texts in CAPTIONS for text in texts]
    words = {text: Counter(word for word in text.split() if len(word) > 1) for text in [*texts, *SENTENCES]}
    documents = Counter(word for text in texts for word in words[text])

    def vector(text: str) -> dict[str, float]:
        known = {word: 1 + log(count) for word, count in words[text].items() if word in documents}
        weights = {word: tf * (1 + log((1 + len(texts)) / (1 + documents[word]))) for word, tf in known.items()}
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
        sorted({row} | {
            number for number, texts in enumerate(CAPTIONS)
            if any(cosine(vector(sentence), vector(text)) >= level for text in texts)
        })
        for sentence, row in zip(SENTENCES, OWN, strict=True)
    ]  # fmt: skip


def test_a_sentence_describes_items_with_a_similar_caption() -> None:
    items = pa.table({"item_id": [str(row) for row in range(5)], "captions": CAPTIONS})
    found = [rows.tolist() for rows in relevant_rows(items, SENTENCES, OWN)]
    assert found == expected_rows()
    assert found[0] == [0, 1, 4]
    assert found[2] == [2]


def test_a_sentence_comes_near_items_that_share_a_rare_word() -> None:
    items = pa.table({"item_id": [str(row) for row in range(5)], "captions": CAPTIONS})
    sentences, own = ["a white dog swims", "a ship", "nothing known here"], OWN
    near = [rows.tolist() for rows in near_rows(items, sentences, own)]
    assert near == [[0, 1, 4], [3], [2]]
    assert [rows.tolist() for rows in near_rows(items, SENTENCES, OWN)] == expected_rows(NEAR)


def test_one_shared_word_of_two_long_sentences_brings_an_item_near() -> None:
    """A dog on a beach would otherwise stand for the absence of the dog in the snow of a sentence."""
    captions = [["a brown dog sleeps beside two old chairs near white umbrellas along some quiet sandy beach today"]]
    captions += [[text] for text in ("fresh snow", "tall trees", "red sleds", "woods at dusk", "children shout loudly")]
    items = pa.table({"item_id": [str(row) for row in range(6)], "captions": captions})
    sentence = "dog fresh snow tall trees red sleds woods dusk"
    assert [rows.tolist() for rows in near_rows(items, [sentence], [5])] == [[0, 1, 2, 3, 4, 5]]


@pytest.mark.parametrize("captions", [None, [[], []], [["!", "?"], []], [["a dog"], ["a dog"]]])
def test_without_captions_to_compare_only_own_items_fit(captions: list[list[str]] | None) -> None:
    columns = {"item_id": ["1", "2"]}
    items = pa.table(
        columns if captions is None else {**columns, "captions": pa.array(captions, pa.list_(pa.string()))}
    )
    assert [rows.tolist() for rows in relevant_rows(items, ["a dog"], [1])] == [[1]]


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
