"""Calibration on drawn vectors: probabilities follow the order of the results; shares come from
held-out folds."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.calibration import DEPTH, UNREACHABLE, Calibration, Level
from bifocal.search.calibration.caption_relevance import near_rows, relevant_rows
from bifocal.search.calibration.fitting import (
    FALSE_POSITIVES,
    MIN_PAIRS,
    PRESENCE,
    RELEVANCE,
    Limit,
    allowed_share,
    calibrate,
    first_results,
    least_certain,
)
from bifocal.search.calibration.logistic import RIDGE, fit_logistic, probabilities
from bifocal.search.index.exact import unit_vectors
from tests.margins import margin

COUNT, D = 200, 12
HELD_OUT = FALSE_POSITIVES + margin(COUNT, FALSE_POSITIVES)


def drawn(noise: float) -> tuple[SearchIndex, np.ndarray]:
    """Return an index with biases, and one query per item: its vector with noise."""
    random = np.random.default_rng(0)
    vectors = random.normal(size=(COUNT, D))
    index = SearchIndex.of(
        [str(row) for row in range(COUNT)], vectors, 0.1 * random.normal(size=COUNT)
    )
    return index, unit_vectors(unit_vectors(vectors) + noise * random.normal(size=(COUNT, D)))


def test_probabilities_are_those_of_the_scores_with_biases() -> None:
    index, queries = drawn(noise=0.2)
    index.calibration = calibrate(index, queries, index.ids)
    assert index.bias is not None
    for hits in Search(index).batch(queries[:5], 12, sentences=True):
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        margin = sum(scores[1:10]) / 9
        for hit, score in zip(hits, scores, strict=True):
            logit = index.calibration.intercept + index.calibration.score * score
            expected = 1 / (1 + math.exp(-logit - index.calibration.margin * (score - margin)))
            assert hit.probability == pytest.approx(expected, abs=1e-6)
    (plain,) = Search(index).batch(queries[:1], 12)
    assert {hit.probability for hit in plain} == {None}  # the calibration is for sentences


def test_good_queries_are_found_and_random_ones_rarely() -> None:
    index, queries = drawn(noise=0.02)
    good = calibrate(index, queries, index.ids)
    index, queries = drawn(noise=0.6)
    poor = calibrate(index, queries, index.ids)
    assert good.recall > poor.recall + margin(COUNT)
    # The threshold of the other folds holds for the held-out one.
    assert max(good.false_positive_rate, poor.false_positive_rate) <= HELD_OUT


@given(seed=st.integers(0, 2**32 - 1), slope=st.floats(0.5, 12), center=st.floats(0, 1))
def test_the_results_called_found_are_right_also_one_error_lower(
    seed: int, slope: float, center: float
) -> None:
    random = np.random.default_rng(seed)
    values = random.random(200)
    right = random.random(200) < 1 / (1 + np.exp(-slope * (values - center)))
    least = least_certain(values, right)
    for cut in sorted(values):  # by definition: the lowest cut that keeps the share
        chosen = [
            bool(is_right) for value, is_right in zip(values, right, strict=True) if value >= cut
        ]
        share = sum(chosen) / len(chosen)
        if len(chosen) >= MIN_PAIRS and share - math.sqrt(share * (1 - share) / len(chosen)) >= 0.8:
            assert least == cut
            return
    assert least == UNREACHABLE


def test_new_queries_that_are_found_are_right_in_four_of_five_cases() -> None:
    """Half of the items calibrate; the queries of the other half find their own item."""
    found, right = 0, 0
    for seed in range(5):
        random = np.random.default_rng(seed)
        index, queries = drawn(noise=0.15)
        order = random.permutation(COUNT)
        fitted, asked = order[: COUNT // 2], order[COUNT // 2 :]
        calibration = calibrate(index, queries[fitted], [index.ids[row] for row in fitted])
        scores, relevant = first_results(index, queries[asked], list(asked[:, None]))
        scores, relevant = scores[: len(asked)], relevant[: len(asked)]  # with a match
        certain = calibration.probabilities(scores)[:, 0] >= calibration.certain
        found, right = found + int(certain.sum()), right + int(relevant[certain].sum())
    assert found > 50
    assert right / found >= 0.8 - margin(found, 0.8)


@pytest.mark.parametrize(("limit", "least"), [(RELEVANCE, 59), (PRESENCE, 23)])
@pytest.mark.parametrize("items", [20, 58, 59, 200, 1000])
def test_the_allowed_share_is_the_largest_that_shows_the_rate(
    items: int, limit: Limit, least: int
) -> None:
    share, confidence = limit

    def chance_of_at_most(count: int) -> float:
        """Probability of so few false positives if the true rate is the limit."""
        return sum(
            math.comb(items, k) * share**k * (1 - share) ** (items - k) for k in range(count + 1)
        )

    count = round(allowed_share(items, limit) * items)
    assert chance_of_at_most(count + 1) > 1 - confidence
    assert items < least or chance_of_at_most(count) <= 1 - confidence


def test_new_queries_exceed_the_rate_in_few_samples() -> None:
    """Half of the items calibrate, the queries of the other half find another item: all their
    results are wrong."""
    exceeded = 0
    for seed in range(20):
        random = np.random.default_rng(seed)
        index, queries = drawn(noise=0.15)
        order = random.permutation(COUNT)
        fitted, asked = order[: COUNT // 2], order[COUNT // 2 :]
        calibration = calibrate(index, queries[fitted], [index.ids[row] for row in fitted])
        scores = first_results(index, queries[asked], list(asked[:, None]))[0][len(asked) :]
        rate = float((calibration.probabilities(scores)[:, 0] >= calibration.threshold).mean())
        exceeded += rate > FALSE_POSITIVES
    assert exceeded <= 4  # half of them, if the threshold were the quantile of the rate itself


def test_absent_concepts_are_told_from_matches_better_than_near_misses() -> None:
    """Items of ten concepts; a query names its item, and comes near all items of its concept."""
    random = np.random.default_rng(0)
    concept = np.arange(COUNT) % 10
    vectors = random.normal(size=(10, D))[concept] + 0.5 * random.normal(size=(COUNT, D))
    index = SearchIndex.of([str(row) for row in range(COUNT)], vectors)
    queries = unit_vectors(vectors) + 0.15 * random.normal(size=(COUNT, D))
    near = [np.flatnonzero(concept == each) for each in concept]
    calibration = calibrate(index, queries, index.ids, near_rows=iter(near))
    presence = calibration.presence
    assert presence is not None
    assert presence.recall > calibration.recall + margin(COUNT)
    assert presence.false_positive_rate <= PRESENCE[0] + margin(COUNT, PRESENCE[0])
    scores, _ = first_results(index, queries, near)
    assert (
        calibration.found(scores).tolist()
        == (presence.probabilities(scores)[:, 0] >= presence.threshold).tolist()
    )
    for row, hits in enumerate(
        Search(index_with(index, calibration)).batch(queries, 3, sentences=True)
    ):
        assert hits.found == calibration.found(scores)[row]


def test_notices_are_rare_on_right_results_with_captions_that_leave_things_out() -> None:
    """Images of 30 things, 10 of each; the one caption of an image names its thing in half of the
    cases."""
    found, absent = [], []
    for seed in range(3):
        random = np.random.default_rng(seed)
        thing = np.arange(300) % 30
        things = unit_vectors(random.normal(size=(30, 32)))
        vectors = things[thing] + 0.09 * random.normal(size=(300, 32))
        texts = [
            [f"thing{number}" if random.random() < 0.5 else f"other{random.integers(99)}"]
            for number in thing
        ]
        named = SearchIndex.of([str(row) for row in range(300)], vectors)
        index = SearchIndex(named.items.append_column("captions", [texts]), named.vectors)
        own = random.permutation(300)[:45].tolist()
        asked = [f"thing{thing[row]}" for row in own]
        queries = things[thing[own]] + 0.12 * random.normal(size=(len(own), 32))
        described, near = relevant_rows(index.items, asked, own), near_rows(index, asked, own)
        calibration = calibrate(index, queries, [str(row) for row in own], described, near)
        new = things + 0.12 * random.normal(size=things.shape)
        scores, right = first_results(
            index, new, [np.flatnonzero(thing == number) for number in range(30)]
        )
        reached = calibration.found(scores)
        found += reached[:30][right[:30]].tolist()
        absent += (~reached[30:]).tolist()
    assert np.mean(found) >= 1 - FALSE_POSITIVES - margin(len(found), FALSE_POSITIVES)
    assert np.mean(absent) >= 1 - PRESENCE[0] - margin(len(absent), PRESENCE[0])


def index_with(index: SearchIndex, calibration: Calibration) -> SearchIndex:
    index.calibration = calibration
    return index


def test_presence_is_left_out_where_every_item_comes_near() -> None:
    index, queries = drawn(noise=0.02)
    near = [np.arange(DEPTH - 1, COUNT)] * COUNT  # too few items are left
    calibration = calibrate(index, queries, index.ids, near_rows=near)
    assert calibration.presence is None
    scores = np.array([[0.9, *[0.1] * 9], [0.1, *[0.1] * 9]])
    assert calibration.found(scores).tolist() == calibration.reached(scores).tolist()


def test_files_keep_both_levels(tmp_path: Path) -> None:
    for presence in (None, Level(-1.0, 2.0, 0.5, 0.25, 0.01, 0.05, 0.75, 80)):
        calibration = Calibration(0.5, 1.0, 0.0, 0.5, 0.0, 0.05, 0.5, 100, presence)
        calibration.write(tmp_path)
        assert Calibration.read(tmp_path) == calibration
    file = tmp_path / "calibration.json"
    content = json.loads(file.read_text())
    assert "certain" in content
    assert "certain" not in content["presence"]
    content["presence"]["certain"] = 0.5
    file.write_text(json.dumps(content))  # as Bifocal 0.3.0 wrote it
    assert Calibration.read(tmp_path) == calibration


@given(seed=st.integers(0, 2**32 - 1), items=st.integers(20, 200), scale=st.floats(0.1, 20))
def test_the_regression_is_the_one_of_scikit_learn(seed: int, items: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    variables = random.normal(size=(items, 2))
    labels = variables @ [scale, -1] + random.normal(size=items) > 0
    assume(0 < labels.sum() < items)
    model = LogisticRegression(C=1 / RIDGE, tol=1e-8, max_iter=10_000).fit(variables, labels)
    assert probabilities(fit_logistic(variables, labels), variables) == pytest.approx(
        model.predict_proba(variables)[:, 1], abs=1e-3
    )


@given(items=st.integers(1, 3000), share=st.floats(0.01, 0.2), confidence=st.floats(0.5, 0.99))
def test_the_allowed_share_is_the_quantile_of_scipy(
    items: int, share: float, confidence: float
) -> None:
    expected = max(int(binom.ppf(1 - confidence, items, share)) - 1, 0) / items
    assert allowed_share(items, (share, confidence)) == pytest.approx(expected, abs=1e-9)
