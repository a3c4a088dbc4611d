"""Fisher vectors of words under a mixture; loads without torch and SciPy, for ``bifocal.onnx``.

Klein et al., CVPR 2015; Perronnin, Sanchez, Mensink, "Improving the Fisher kernel", ECCV 2010.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bifocal.onnx.text.tokens import MAX_TOKENS, tokenize
from bifocal.onnx.text.vocabulary import Vocabulary
from bifocal.onnx.text.word_means import VECTORS

STATE = "fisher.safetensors"
Array = NDArray[np.float64]
Vectors = NDArray[np.float32]


@dataclass
class Mixture:
    """K centers in D independent dimensions; each dimension of each center is Gaussian or Laplacian."""

    weights: Array  # (K,), with sum 1
    centers: Array  # (K, D), means or medians
    scales: Array  # (K, D), standard deviations or mean absolute deviations
    gaussian: NDArray[np.bool_]  # (K, D) bool, False for Laplacian

    def log_joint(self, x: Array) -> Array:
        """Return ln(weight x density) of every center: (N, D) -> (N, K)."""
        constant = np.where(self.gaussian, -0.5 * np.log(2 * np.pi), -np.log(2)) - np.log(self.scales)
        columns = []
        for weight, center, scale, gaussian, term in zip(
            self.weights, self.centers, self.scales, self.gaussian, constant, strict=True
        ):
            z = np.abs(x - center) / scale
            columns.append(np.log(weight) + term.sum() - np.where(gaussian, 0.5 * z * z, z).sum(axis=1))
        return np.stack(columns, axis=1)

    def responsibilities(self, x: Array) -> Array:
        """Return the probability of each center given x: (N, D) -> (N, K)."""
        joint = self.log_joint(x)
        likelihoods = np.exp(joint - joint.max(axis=1, keepdims=True))
        probabilities: Array = likelihoods / likelihoods.sum(axis=1, keepdims=True)
        return probabilities

    def fisher_terms(self, x: Array) -> Array:
        """Return the contribution of each word to the Fisher vector: (N, D) -> (N, 2 K D), centers, then scales.

        The Fisher information is approximated as if the centers did not overlap.
        """
        first, second = [], []
        for k, probability in enumerate(self.responsibilities(x).T):
            z = (x - self.centers[k]) / self.scales[k]
            gaussian, root = self.gaussian[k], probability[:, None] / np.sqrt(self.weights[k])
            first.append(root * np.where(gaussian, z, np.sign(z)))
            second.append(root * np.where(gaussian, (z * z - 1) / np.sqrt(2), np.abs(z) - 1))
        return np.concatenate([*first, *second], axis=1)


@dataclass(frozen=True)
class FisherArrays:
    """Arrays that map words to principal components of Fisher vectors."""

    words: Vectors  # (V, K) word vectors
    state: dict[str, NDArray[Any]]  # independent components, mixture and principal components, by name

    @property
    def mixture(self) -> Mixture:
        """Mixture of the independent components of words."""
        return Mixture(*(self.state[name] for name in ("weights", "centers", "scales", "gaussian")))

    def unmix(self, ids: NDArray[Any]) -> Array:
        """Return the independent components of words."""
        components: Vectors = (self.words[ids] - self.state["word_mean"]) @ self.state["unmixing"]
        return components.astype(np.float64)

    def terms(self, ids: NDArray[Any]) -> Vectors:
        """Return the contribution of each word to a Fisher vector."""
        terms: Vectors = self.mixture.fisher_terms(self.unmix(ids)).astype(np.float32)
        return terms

    def reduce(self, fisher: Vectors) -> Vectors:
        """Return the principal components of normalized Fisher vectors."""
        reduced: Vectors = (fisher - self.state["mean"]) @ self.state["components"]
        return reduced


def normalize_fisher(vectors: Vectors) -> Vectors:
    """Return Fisher vectors after power normalization and l2 normalization; zero stays zero."""
    rooted = np.sign(vectors) * np.sqrt(np.abs(vectors))
    normalized: Vectors = rooted / np.maximum(np.linalg.norm(rooted, axis=1, keepdims=True), 1e-12)
    return normalized


@dataclass(frozen=True)
class FisherReader:
    """Fisher vectors of sentences, as ``FisherVectors`` computes them."""

    vocabulary: Vocabulary
    arrays: FisherArrays

    @classmethod
    def load(cls, directory: Path) -> "FisherReader":
        """Read the files of a text."""
        words, state = load_file(directory / VECTORS)["vectors"], load_file(directory / STATE)
        return cls(Vocabulary.load(directory / Vocabulary.FILE), FisherArrays(words, state))

    def batch(self, sentences: Sequence[str]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the vectors (B, k) of B sentences, and ones (B,)."""
        means = np.zeros((len(sentences), len(self.arrays.state["mean"])), dtype=np.float32)
        for row, sentence in enumerate(sentences):
            ids = np.array(self.vocabulary.encode(tokenize(sentence)[:MAX_TOKENS]), dtype=np.int64)
            known = ids[ids > 1]
            if len(known):
                means[row] = (self.arrays.terms(known) / np.float32(len(known))).sum(axis=0)
        return self.arrays.reduce(normalize_fisher(means)), np.ones(len(sentences), dtype=np.int64)

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each token has a vector."""
        return self.vocabulary.known(tokens)
