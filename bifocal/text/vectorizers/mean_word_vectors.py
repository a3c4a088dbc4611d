"""Captions as the mean of their words' vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bifocal.text.format import Layout, Rows
from bifocal.text.vectorizers.pretrained_word_vectors import PretrainedWordVectors
from bifocal.text.vectorizers.word2vec import Word2Vec
from bifocal.text.word_vectors.word_vectors import WordVectors


@dataclass
class MeanWordVectors:
    """The mean of the word vectors of a caption; unknown words are left out, a caption without any other is zero.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.1.

    Args:
        dim: K, of the word vectors that are trained here.
        min_count: how often a word must occur in the training captions.
        epochs: of skip-gram.
        subsample: of skip-gram, see :class:`bifocal.text.Word2Vec`.
        path: a file of word vectors, which are taken instead; see :class:`bifocal.text.PretrainedWordVectors`.
    """

    dim: int = 300
    min_count: int = 1
    epochs: int = 5
    subsample: float = 1e-3
    path: Path | str | None = None
    table: WordVectors = field(init=False, repr=False)

    @property
    def layout(self) -> Layout:
        """A vector of the words' dimension."""
        return Layout("vectors", self.table.dim)

    def fit(self, captions: Sequence[str], seed: int) -> dict[str, float]:
        """Train or load the word vectors."""
        self.table, figures = learn_words(
            captions, seed, self.dim, self.min_count, self.epochs, self.subsample, self.path
        )
        return figures

    def rows(self, captions: Sequence[str]) -> Rows:
        """The mean of each caption."""
        tokens = self.table.encode(captions)
        means = []
        for ids in tokens.values:
            known = ids[ids > 1]
            means.append(self.table.vectors[known].sum(axis=0) / max(len(known), 1))
        return Rows(means, counts=tokens.counts)

    def save(self, directory: Path) -> None:
        """Write the vocabulary and the vectors."""
        self.table.save(directory)

    def load(self, directory: Path) -> None:
        """Read what :meth:`save` wrote."""
        self.table = WordVectors.load(directory)


def learn_words(
    captions: Sequence[str], seed: int, dim: int, min_count: int, epochs: int, subsample: float, path: Path | str | None
) -> tuple[WordVectors, dict[str, float]]:
    """Word vectors from a file, or, without one, by skip-gram from the captions; and what there is to report."""
    words: PretrainedWordVectors | Word2Vec
    if path is not None:
        words = PretrainedWordVectors(min_count=min_count, path=path)
    else:
        words = Word2Vec(dim=dim, min_count=min_count, epochs=epochs, subsample=subsample)
    figures = words.fit(captions, seed)
    return words.table, figures
