"""Similarity of phrases to classes by their words."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bifocal.onnx.pointing.similarity import CLASSES, open_similarity, unit


def test_words_are_weighted_by_their_inverse_frequency(tmp_path: Path) -> None:
    texts = {
        "names": [["fire engine", "truck"], ["fire"]],
        "definitions": ["a red truck", "it burns"],
    }
    (tmp_path / CLASSES).write_text(json.dumps(texts))
    similarity = open_similarity(tmp_path)
    fire, engine = math.log(3 / 3), math.log(3 / 2)
    rare = math.log(3)  # a word that no class has
    assert similarity(["engines"])[0].tolist() == pytest.approx(
        [engine / (fire + engine) / 2, 0], abs=1e-6
    )
    assert similarity(["trucks"])[0].tolist() == pytest.approx([1, 0])
    mixed = similarity(["truck zebra"])[0].tolist()
    assert mixed == pytest.approx([engine / (engine + rare), 0])
    assert similarity([""]).tolist() == [[0, 0]]


def test_vectors_get_unit_norm() -> None:
    assert unit(np.array([[3.0, 4.0], [0.0, 0.0]])) == pytest.approx(
        np.array([[0.6, 0.8], [0.0, 0.0]])
    )
