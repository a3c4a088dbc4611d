"""Similarity of a phrase to the classes of a backbone, by a sentence encoder or by words."""

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bifocal.onnx.files import read_json
from bifocal.onnx.sessions import Array, open_session, run_graph
from bifocal.onnx.text.captions import tokenize
from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer

SENTENCES, VECTORS, CLASSES = "sentences.onnx", "classes.safetensors", "classes.json"
PROMPT = "a photo of a {}"
EPSILON = 1e-6


class Similarity(Protocol):
    """Similarity of phrases to K classes."""

    def __call__(self, phrases: Sequence[str]) -> Array:
        """Return the similarities (P, K) of P phrases, at most 1."""

    def known(self, phrase: str) -> dict[str, bool] | None:
        """Return whether each word of a phrase is known; None if all are."""


class SentenceSimilarity:
    """Cosines of vectors of a sentence encoder: phrase and prompt, with the synonyms and the
    definition of a class.

    The similarity is the mean of four: of the phrase and of "a photo of a {phrase}", each with the
    nearest synonym of the class and with its definition.
    """

    def __init__(self, directory: Path) -> None:
        self.graph = open_session(
            directory / SENTENCES, threads=1
        )  # a phrase is too short for more
        self.tokenizer = SubwordTokenizer.read(directory / TOKENIZER)
        vectors = load_file(directory / VECTORS)
        self.synonyms, self.definitions = vectors["synonyms"], vectors["definitions"]
        # Synonyms of a class follow one another.
        self.starts = np.flatnonzero(np.diff(vectors["classes"], prepend=-1))

    def __call__(self, phrases: Sequence[str]) -> Array:
        return np.array([self._similarities(phrase) for phrase in phrases])

    def known(self, phrase: str) -> None:
        """Return None: subwords spell all words."""

    def _similarities(self, phrase: str) -> Array:
        vectors = unit(
            run_graph(self.graph, self.tokenizer.batch([phrase, PROMPT.format(phrase)]))[0]
        )
        # Without BLAS: it divides a product of this size among threads, and waits 15 ms for them on
        # busy cores.
        nearest = np.maximum.reduceat(
            np.einsum("sd,vd->vs", self.synonyms, vectors), self.starts, axis=1
        )
        similarities: Array = (nearest + np.einsum("cd,vd->vc", self.definitions, vectors)).mean(
            axis=0
        ) / 2
        return similarities


class WordSimilarity:
    """Share of a phrase's stems that a class has, weighted by their inverse frequency: no sentence
    encoder.

    The similarity is the mean of two: of the best synonym, where further words of the synonym count
    against it, and of the definition.
    """

    def __init__(self, directory: Path) -> None:
        from snowballstemmer import (
            stemmer,
        )  # imported here: it imports all languages, which takes 0.2 seconds

        content = read_json(directory / CLASSES)
        self._stem = stemmer("english").stemWord
        self.synonyms = [[self._words(name) for name in synonyms] for synonyms in content["names"]]
        self.definitions = [self._words(definition) for definition in content["definitions"]]
        if not all(self.synonyms):
            raise ValueError("a class has no name")
        classes = zip(self.synonyms, self.definitions, strict=True)
        self._counts = Counter(
            word for synonyms, definition in classes for word in definition.union(*synonyms)
        )

    def __call__(self, phrases: Sequence[str]) -> Array:
        return np.array(
            [self._similarities(self._words(phrase)) for phrase in phrases], dtype=np.float32
        )

    def known(self, phrase: str) -> dict[str, bool]:
        """Return whether a class has each word of a phrase."""
        return {word: self._stem(word) in self._counts for word in tokenize(phrase)}

    def _similarities(self, words: frozenset[str]) -> list[float]:
        total = max(self._weight(words), EPSILON)
        return [
            max(
                self._weight(words & synonym) / max(total, self._weight(synonym))
                for synonym in synonyms
            )
            / 2
            + self._weight(words & definition) / total / 2
            for synonyms, definition in zip(self.synonyms, self.definitions, strict=True)
        ]

    def _weight(self, words: frozenset[str]) -> float:
        return sum(
            math.log((1 + len(self.definitions)) / (1 + self._counts[word])) for word in words
        )

    def _words(self, text: str) -> frozenset[str]:
        return frozenset(self._stem(word) for word in tokenize(text))


def unit(vectors: Array) -> NDArray[np.float32]:
    """Return vectors (B, d) divided by their norms."""
    norms = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), EPSILON)
    return np.asarray(vectors / norms, dtype=np.float32)


def open_similarity(directory: Path) -> Similarity:
    """Return the similarity of an exported head: by its sentence encoder, or by words if it has
    none."""
    if (directory / SENTENCES).is_file():
        return SentenceSimilarity(directory)
    return WordSimilarity(directory)
