"""METEOR: similarity of two sentences by an alignment of their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from snowballstemmer import stemmer

from bifocal.text import tokenize

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
"""Balance of precision and recall, shape and weight of the fragmentation penalty, weight of content
words."""
EXACT, STEM = 1.0, 0.6
"""Weights of the matchers."""
FUNCTION_WORDS = frozenset(
    """
    the to of and a in that for is on 's it with was as said at he by be from have has are his but
    an this not i will they who their had we which were been more or s its would about new one
    after you also up when there than all out her people she year two can if last first over other
    into some what so no time years could 't
    """.split()  # noqa: SIM905
)
"""The words among the authors' English function words (``function/english.words`` of their jar)."""
BEAM = 40
"""Partial alignments that are kept, as in the authors' code."""


@dataclass(frozen=True)
class MeteorSentence:
    """Words of a sentence with their stems and weights; see ``meteor_sentence``."""

    words: tuple[str, ...]
    stems: tuple[str, ...]
    weights: tuple[float, ...]


@dataclass(frozen=True)
class _Alignment:
    """Partial alignment: covered words of the reference, the last one, the matches, and their
    cost."""

    covered: int = 0
    last: int | None = None
    matches: tuple[tuple[int, int], ...] = ()
    chunks: int = 0
    weight: float = 0.0

    def rank(self) -> tuple[int, int, float]:
        return len(self.matches), -self.chunks, self.weight


def meteor_sentence(text: str) -> MeteorSentence:
    """Return the words of ``text``, with their stems and weights."""
    words = tuple(tokenize(text))
    weights = tuple(1 - DELTA if word in FUNCTION_WORDS else DELTA for word in words)
    return MeteorSentence(words, tuple(map(_stem, words)), weights)


def meteor(hypothesis: MeteorSentence, reference: MeteorSentence) -> float:
    """Return METEOR, in [0, 1], by word forms and Snowball stems, without synonyms and paraphrases.

    Denkowski and Lavie, "Meteor Universal", WMT 2014, section 3, with the parameters for English.
    """
    matches, chunks = align(hypothesis, reference)
    if not matches:
        return 0.0
    weight = [EXACT if hypothesis.words[i] == reference.words[j] else STEM for i, j in matches]
    precision = sum(w * hypothesis.weights[i] for w, (i, _) in zip(weight, matches, strict=True))
    precision /= sum(hypothesis.weights)
    recall = sum(w * reference.weights[j] for w, (_, j) in zip(weight, matches, strict=True)) / sum(
        reference.weights
    )
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    complete = chunks == 1 and len(matches) == len(hypothesis.words) == len(reference.words)
    # The authors' code has no penalty for a complete match.
    return mean if complete else (1 - GAMMA * (chunks / len(matches)) ** BETA) * mean


def align(
    hypothesis: MeteorSentence, reference: MeteorSentence
) -> tuple[Sequence[tuple[int, int]], int]:
    """Return matches (hypothesis word, reference word) and their chunks: most matches, then fewest
    chunks."""
    positions: dict[str, list[int]] = {}
    for j, stem in enumerate(reference.stems):
        positions.setdefault(stem, []).append(j)
    beam = [_Alignment()]
    for i, stem in enumerate(hypothesis.stems):
        candidates = positions.get(stem, [])
        best: dict[tuple[int, int | None], _Alignment] = {}
        for previous in beam:
            extended = [
                _Alignment(
                    previous.covered, None, previous.matches, previous.chunks, previous.weight
                )
            ]
            extended += [
                _Alignment(
                    previous.covered | 1 << j,
                    j,
                    (*previous.matches, (i, j)),
                    previous.chunks + (previous.last is None or j != previous.last + 1),
                    previous.weight
                    + (EXACT if hypothesis.words[i] == reference.words[j] else STEM),
                )
                for j in candidates
                if not previous.covered >> j & 1
            ]
            for state in extended:
                key = (state.covered, state.last)
                if key not in best or state.rank() > best[key].rank():
                    best[key] = state
        beam = sorted(best.values(), key=_Alignment.rank, reverse=True)[:BEAM]
    return beam[0].matches, beam[0].chunks


@cache
def _stem(word: str) -> str:
    stem: str = stemmer("english").stemWord(word)
    return stem
