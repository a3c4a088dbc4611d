"""Calibrated search with the model of the demo: queries of known relevance, with and without a
match."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from bifocal.datasets.scenes.captions import ADJECTIVES, NOUNS, ON, Sentence
from bifocal.datasets.scenes.layout import BACKGROUNDS, COLORS, SHAPES, Scene
from bifocal.datasets.scenes.scenes import Scenes
from bifocal.onnx.encoders import Embedder
from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.calibration import Calibration
from bifocal.search.calibration.fitting import FALSE_POSITIVES, calibrate, calibration_error
from pipelines.app.demo import SHIPPED
from tests.margins import margin

IMAGES, SHORT = 256, slice(5, 7)
"""Images of the demo, and the captions of an image that are as short as queries."""


@cache
def scenes() -> list[tuple[Scene, list[Sentence]]]:
    return [Scenes(seed=1, short=2).scene("test", number) for number in range(IMAGES)]


def shows(scene: Scene, color: str, shape: str, background: str) -> bool:
    appearances = [group[0].appearance for group in scene.groups]
    return scene.background == background and any(
        (one.color, one.shape) == (color, shape) for one in appearances
    )


def recombined(count: int, seed: int) -> tuple[list[str], list[set[int]]]:
    """Return queries of random attributes, such as "A red star on water.", and the images that each
    one describes."""
    random = np.random.default_rng(seed)
    queries, matches = [], []
    for _ in range(count):
        color, shape, background = (
            str(random.choice(names)) for names in (list(COLORS), SHAPES, BACKGROUNDS)
        )
        words = f"{random.choice(ADJECTIVES[color])} {random.choice(NOUNS[shape])}"
        queries.append(
            f"{'An' if words[0] in 'aeiou' else 'A'} {words} {random.choice(ON[background])}."
        )
        matches.append(
            {
                number
                for number, (scene, _) in enumerate(scenes())
                if shows(scene, color, shape, background)
            }
        )
    return queries, matches


@pytest.fixture(scope="module")
def demo() -> tuple[Embedder, SearchIndex]:
    index = SearchIndex.of(
        [str(number) for number in range(IMAGES)], np.load(SHIPPED / "vectors.npy")
    )
    captions = [[sentence.text for sentence in sentences[SHORT]] for _, sentences in scenes()]
    embedder = Embedder(SHIPPED / "onnx")
    queries = np.concatenate(
        [embedder.embed_sentences(texts) for texts in zip(*captions, strict=True)]
    )
    index.calibration = calibrate(index, queries, list(index.ids) * 2)
    return embedder, index


def test_probabilities_are_those_of_relevance(demo: tuple[Embedder, SearchIndex]) -> None:
    embedder, index = demo
    queries, matches = recombined(1200, seed=5)
    without = np.array([not found for found in matches])
    assert without.sum() >= 200
    hits = [
        found[0]
        for found in Search(index).batch(embedder.embed_sentences(queries), 1, sentences=True)
    ]
    relevant = np.array([hit.row in found for hit, found in zip(hits, matches, strict=True)])
    probabilities = np.array([hit.probability for hit in hits])
    calibration = index.calibration
    assert calibration is not None
    found = probabilities >= calibration.threshold
    limit = FALSE_POSITIVES + margin(without.sum(), FALSE_POSITIVES)
    assert found[without].mean() <= limit
    assert calibration_error(probabilities, relevant) <= 0.05
    # The threshold finds more of the relevant results than of the others.
    assert found[relevant].mean() > 3 * found[without].mean()


def test_nothing_is_found_below_the_threshold(
    demo: tuple[Embedder, SearchIndex], tmp_path: Path
) -> None:
    embedder, index = demo
    results = Search(index, embedder)("the stock market", k=3)
    assert len(results) == 3
    assert not results.found
    index.write(tmp_path)
    opened = Search(SearchIndex.open(tmp_path), embedder)
    assert opened("the stock market", k=3) == results
    assert Calibration.read(tmp_path) == index.calibration
    assert list(opened("the stock market", k=2, offset=1)) == results[1:]
