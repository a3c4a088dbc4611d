"""Scores of sentence-image pairs from the ONNX graphs of a late-interaction model."""

from collections.abc import Sequence
from pathlib import Path

from bifocal.serving.encoders import Array, Encoders
from bifocal.serving.sessions import open_session, run_graph

SCORES = "scores.onnx"
Captions = tuple[Array, Array]
"""M encoded captions: sentences (M, d) and words (M, T, d), zero after the end of a sentence."""


class PairScorer(Encoders):
    """A model that compares the words of a sentence with the cells of an image, and has no vector for either.

    The features (R, D) of an image are R / L cells of each of L levels, one level after the other.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.scores = open_session(directory / SCORES)
        self.levels = int(self.images.get_outputs()[0].shape[1])

    def encode_captions(self, sentences: Sequence[str]) -> Captions:
        """Encode M sentences."""
        vectors, words = self.encode_sentences(sentences)
        return vectors, words

    def score(self, cells: Array, captions: Captions) -> Array:
        """Return the scores (N, M) float32 of N images, whose cells are (N, L, R, d), and M captions."""
        return run_graph(self.scores, (cells, *captions))[0]


def scores_pairs(directory: Path) -> bool:
    """Return whether an exported model needs ``PairScorer``: it has no vector for a sentence or an image."""
    return (directory / SCORES).is_file()
