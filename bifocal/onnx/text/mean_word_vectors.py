"""Captions as the mean of their word vectors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat, ignored_arguments
from bifocal.onnx.text.pretrained_word_vectors import PretrainedWordVectors
from bifocal.onnx.text.word2vec import Word2Vec
from bifocal.onnx.text.word_vectors import WordVectorizer, WordVectors

SKIP_GRAM_ARGUMENTS = ("dim", "epochs", "subsample")
"""Arguments that only the training of word vectors uses."""


@dataclass
class MeanWordVectors(WordVectorizer):
    """Mean of the word vectors of a caption, without unknown words; zero for a caption without known words.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016, section 3.1. The word
    vectors are trained on the training captions by skip-gram, or read from a file.

    Args:
        dim: K, dimension of the trained word vectors.
        min_count: minimum number of occurrences of a word in the training captions.
        epochs: passes of skip-gram over the captions.
        subsample: as for ``Word2Vec``.
        path: file of word vectors, as for ``PretrainedWordVectors``; None trains them.

    Example:
        >>> vectorizer = MeanWordVectors(dim=4, epochs=1)
        >>> metrics = vectorizer.fit(["a dog runs", "a cat runs"], seed=0)
        >>> vectorizer.transform(["a dog"]).values[0].shape
        (4,)
    """

    dim: int = 300
    min_count: int = 1
    epochs: int = 5
    subsample: float = 1e-3
    path: Path | str | None = None

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        if arguments.get("path") is not None:
            yield from ignored_arguments(arguments, SKIP_GRAM_ARGUMENTS, "with path, which gives the word vectors")

    @property
    def format(self) -> TextFormat:
        return TextFormat("vectors", self.word_vectors.dim)

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Train or read the word vectors."""
        self.word_vectors, metrics = fit_word_vectors(
            captions, seed, self.dim, self.min_count, self.epochs, self.subsample, self.path
        )
        return metrics

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the mean vector of each caption."""
        tokens = super().transform(captions)
        means = []
        for ids in tokens.values:
            known = ids[ids > 1]
            means.append(self.word_vectors.vectors[known].sum(axis=0) / max(len(known), 1))
        return EncodedCaptions(means, counts=tokens.counts)


def fit_word_vectors(
    captions: Sequence[str], seed: int, dim: int, min_count: int, epochs: int, subsample: float, path: Path | str | None
) -> tuple[WordVectors, dict[str, float]]:
    """Return word vectors and metrics: from the file ``path``, or trained by skip-gram if it is None."""
    vectorizer: PretrainedWordVectors | Word2Vec
    if path is not None:
        vectorizer = PretrainedWordVectors(min_count=min_count, path=path)
    else:
        vectorizer = Word2Vec(dim=dim, min_count=min_count, epochs=epochs, subsample=subsample)
    metrics = vectorizer.fit(captions, seed)
    return vectorizer.word_vectors, metrics
