"""Attention against loops over eq. (1)-(6)."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from bifocal.localization import attend, find_phrase, phrase_heatmap, sentence_heatmap
from tests.bifocal.localization.inputs import draw


@given(seed=st.integers(0, 2**31))
def test_attend_and_heatmaps_equal_equations_1_to_6(seed: int) -> None:
    words, cells = normalize(draw(seed, 3, 4), dim=1), normalize(draw(seed + 1, 2, 5, 4), dim=2)
    attention, of_sentence = attend(words, cells), sentence_heatmap(words[0], cells)
    maps, pertinences = [], []
    for t, unit in [(0, True), (1, True), (2, True), (0, False)]:
        best = (-math.inf, [0.0])
        for level in range(2):
            heat = [max(0.0, float(words[t] @ cells[level, n])) for n in range(5)]
            attended = sum(heat[n] * cells[level, n] for n in range(5))
            norm = float(attended.norm()) if unit else 1.0
            pertinence = float(attended @ words[t]) / norm if norm else 0.0
            best = max(best, (pertinence, heat))
        pertinences.append(best[0])
        maps.append(best[1])
    assert attention.pertinence.tolist() == pytest.approx(pertinences[:3])
    for t in range(3):
        assert attention.heatmaps[t].tolist() == pytest.approx(maps[t])
    assert of_sentence.tolist() == pytest.approx(maps[3])
    total = sum(pertinences[:3])
    if total > 1e-6:
        expected = [sum(pertinences[t] * maps[t][n] for t in range(3)) / total for n in range(5)]
        assert phrase_heatmap(words, cells).tolist() == pytest.approx(expected)


def test_invalid_input_is_rejected() -> None:
    for call, expected in (
        (lambda: phrase_heatmap(torch.zeros(0, 3), torch.zeros(1, 4, 3)), "has no word"),
        (lambda: attend(torch.zeros(1, 2), torch.zeros(1, 4, 3)), "differ"),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


def test_find_phrase_returns_position_in_sentence() -> None:
    sentence = ["a", "man", "and", "a", "man", "with", "a", "hat"]
    assert find_phrase(sentence, ["a", "man"]) == slice(0, 2)
    assert find_phrase(sentence, ["a", "man"], 1) == slice(3, 5)
    assert find_phrase(sentence, ["a", "man"], 7) == slice(3, 5)
    assert find_phrase(sentence, ["a", "dog"]) is None
    assert find_phrase(sentence, []) is None
