"""METEOR against a search over all alignments, and worked cases."""

import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bifocal.metrics.ranking.meteor import align, meteor, meteor_sentence

WORDS = st.lists(st.sampled_from(["dog", "dogs", "red", "the", "runs"]), min_size=1, max_size=5)


def all_alignments(hypothesis: list[str], reference: list[str]) -> list[list[tuple[int, int]]]:
    """Every set of matches of equal stems in which no word occurs twice."""
    stems = {"dogs": "dog"}
    options = [
        [
            None,
            *(
                j
                for j, other in enumerate(reference)
                if stems.get(word, word) == stems.get(other, other)
            ),
        ]
        for word in hypothesis
    ]
    choices = [
        [(i, j) for i, j in enumerate(chosen) if j is not None] for chosen in product(*options)
    ]
    return [matches for matches in choices if len({j for _, j in matches}) == len(matches)]


def count_chunks(matches: list[tuple[int, int]]) -> int:
    return sum((i - 1, j - 1) not in matches for i, j in matches)


@given(hypothesis=WORDS, reference=WORDS)
def test_alignment_has_the_most_matches_and_then_the_fewest_chunks(
    hypothesis: list[str], reference: list[str]
) -> None:
    matches, chunks = align(
        meteor_sentence(" ".join(hypothesis)), meteor_sentence(" ".join(reference))
    )
    candidates = all_alignments(hypothesis, reference)
    assert sorted(matches) in candidates
    assert chunks == count_chunks(list(matches))
    assert (-len(matches), chunks) == min(
        (-len(others), count_chunks(others)) for others in candidates
    )


def test_meteor_of_worked_cases() -> None:
    """By hand with section 3: "the" is a function word of weight 0.25, others weigh 0.75; a stem
    matches with 0.6."""
    hypothesis, reference = meteor_sentence("red dog runs"), meteor_sentence("the dogs runs red")
    # "dog runs" is one chunk and "red" the other: 3 matches, 2 chunks.
    precision = (1.0 + 0.6 + 1.0) * 0.75 / (3 * 0.75)
    recall = (1.0 + 0.6 + 1.0) * 0.75 / (0.25 + 3 * 0.75)
    mean = precision * recall / (0.85 * precision + 0.15 * recall)
    assert meteor(hypothesis, reference) == pytest.approx((1 - 0.6 * (2 / 3) ** 0.2) * mean)
    assert meteor(hypothesis, hypothesis) == 1.0
    assert meteor(hypothesis, meteor_sentence("a blue cat")) == 0.0
    assert meteor(meteor_sentence(""), reference) == 0.0


@pytest.mark.real
def test_values_are_those_of_the_authors_program(tmp_path: Path) -> None:
    """``meteor-1.5.jar`` of the package pycocoevalcap with the matchers exact and stem.

    No stem occurs twice in a sentence: the program leaves out a stem match with several candidates.
    """
    package = pytest.importorskip("pycocoevalcap")
    if shutil.which("java") is None:
        pytest.skip("needs java")
    generator = np.random.default_rng(0)
    forms = ["a", "the", "dog dogs", "running runs", "in", "of", "with", "red", "girls girl", "is"]
    pairs = [
        [
            " ".join(
                generator.choice(forms[row].split())
                for row in generator.permutation(len(forms))[: generator.integers(2, 10)]
            )
            for _ in range(2)
        ]
        for _ in range(300)
    ]
    for name, texts in zip(("h", "r"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("\n".join(texts) + "\n")
    jar = Path(package.__path__[0]) / "meteor" / "meteor-1.5.jar"
    options = ["-l", "en", "-m", "exact stem", "-w", "1.0 0.6"]
    command = ["java", "-jar", str(jar), str(tmp_path / "h"), str(tmp_path / "r"), *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    theirs = np.array(re.findall(r"Segment \d+ score:\s+([\d.eE-]+)", printed), float)
    ours = np.array([meteor(*map(meteor_sentence, pair)) for pair in pairs])
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
