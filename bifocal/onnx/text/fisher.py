"""Captions as Fisher vectors of their words."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.onnx.text.mixture import Mixture, fit_mixture
from bifocal.onnx.text.word2vec import CaptionVectors

STATE = "fisher.safetensors"
Array = NDArray[np.float32]
BLOCK = 512
"""Captions that are transformed together."""


@dataclass
class FisherVectors(CaptionVectors):
    """Fisher vectors of word vectors under a mixture, with power and l2 normalization, then PCA.

    Wang, Li, Lazebnik, CVPR 2016, section 3.1, after Klein et al., CVPR 2015: independent
    components of 300-d word vectors, 30 centers, first and second order, 18,000 dimensions, PCA to
    6,000. A caption without known words is the projection of the zero vector.

    Args:
        dim: dimension of the trained word vectors.
        mixture: "hglmm", each dimension of a center is Gaussian or Laplacian; or "gmm", all are
            Gaussian.
        centers: number of centers of the mixture.
        components: k, dimension after PCA; lower if there are fewer training captions.
        pca_captions: maximum number of training captions for PCA, evenly spaced.
        iterations: iterations of EM.
        min_count, epochs, subsample, path: of the word vectors, as for ``MeanWordVectors``.

    Example:
        >>> vectorizer = FisherVectors(dim=4, centers=2, components=3, epochs=1, iterations=2)
        >>> metrics = vectorizer.fit(
        ...     ["a dog runs", "a cat eats", "the dog eats food", "a bird"], seed=0
        ... )
        >>> vectorizer.transform(["a dog"]).values[0].shape
        (3,)
    """

    mixture: Literal["hglmm", "gmm"] = "hglmm"
    centers: int = 30
    components: int = 6000
    pca_captions: int = 150_000
    iterations: int = 20
    state: dict[str, NDArray[Any]] = field(init=False, repr=False)  # ICA, mixture and PCA, by name

    @property
    def format(self) -> TextFormat:
        """Vectors with the dimension after PCA."""
        return TextFormat("vectors", self.state["components"].shape[1])

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Fit word vectors, independent components, mixture and principal components."""
        from bifocal.progress import track  # exported models do not contain it

        metrics = super().fit(captions, seed)
        vectors = self.word_vectors.vectors
        tokens = super().transform(captions)
        counts = np.bincount(np.concatenate(tokens.values), minlength=len(vectors))[2:].astype(
            float
        )
        mean, unmixing = independent_components(vectors[2:], seed)
        self.state = {"word_mean": mean, "unmixing": unmixing}
        used = counts > 0
        mixture, history = fit_mixture(
            self._unmix(np.flatnonzero(used) + 2),
            counts[used],
            self.centers,
            self.mixture == "hglmm",
            seed,
            self.iterations,
        )
        self.state |= vars(mixture)
        step = max(1, -(-len(tokens.values) // self.pca_captions))
        selected = tokens.values[::step]

        def blocks() -> Iterator[Array]:
            for start in track(range(0, len(selected), BLOCK), "principal components"):
                yield self.fisher(selected[start : start + BLOCK])

        self.state["mean"], self.state["components"] = streaming_pca(blocks, self.components, seed)
        gaussian_share = float(mixture.gaussian.mean())
        return metrics | {
            "log_likelihood": history[-1] if history else 0.0,
            "gaussian_share": gaussian_share,
        }

    def fisher(self, sentences: Sequence[NDArray[Any]]) -> Array:
        """Return Fisher vectors before PCA: token ids of B sentences -> (B, 2 centers dim)."""
        known = [ids[ids > 1] for ids in sentences]
        # A Fisher vector is a mean over words: compute the term of each different word once.
        words, rows = np.unique(np.concatenate(known), return_inverse=True)
        mixture = Mixture(*(self.state[field.name] for field in fields(Mixture)))
        terms = mixture.fisher_terms(self._unmix(words)).astype(np.float32)
        vectors = np.zeros((len(known), terms.shape[1]), np.float32)
        term, end = np.empty(terms.shape[1], np.float32), 0
        for vector, ids in zip(vectors, known, strict=True):
            start, end = end, end + len(ids)
            for row in rows[start:end]:
                vector += np.multiply(terms[row], np.float32(1 / len(ids)), out=term)
        # Power normalization, then l2 normalization; zero stays zero.
        rooted = np.sign(vectors) * np.sqrt(np.abs(vectors))
        normalized: Array = rooted / np.maximum(
            np.linalg.norm(rooted, axis=1, keepdims=True), 1e-12
        )
        return normalized

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the Fisher vector of each caption, after PCA."""
        tokens = super().transform(captions)
        reduced: list[Array] = []
        for start in range(0, len(captions), BLOCK):
            fisher = self.fisher(tokens.values[start : start + BLOCK])
            reduced += list((fisher - self.state["mean"]) @ self.state["components"])
        return EncodedCaptions(reduced, counts=tokens.counts)

    def save(self, directory: Path) -> None:
        super().save(directory)
        save_file(
            {name: np.ascontiguousarray(value) for name, value in self.state.items()},
            directory / STATE,
        )

    def load(self, directory: Path) -> None:
        super().load(directory)
        self.state = load_file(directory / STATE)

    def _unmix(self, ids: NDArray[Any]) -> NDArray[np.float64]:
        """Return the independent components of words."""
        components: Array = (self.word_vectors.vectors[ids] - self.state["word_mean"]) @ self.state[
            "unmixing"
        ]
        return components.astype(np.float64)


def independent_components(words: Array, seed: int) -> tuple[Array, Array]:
    """Return the mean (K,) and the unmixing matrix (K, at most K) to unit variance, by FastICA."""
    # Exported models, which do not fit, contain none of these.
    from sklearn.decomposition import FastICA
    from sklearn.exceptions import ConvergenceWarning

    from bifocal.progress import log_line

    count = min(words.shape[1], len(words) - 1)
    ica = FastICA(count, random_state=seed, whiten="unit-variance", max_iter=200, tol=1e-3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        ica.fit(words.astype(np.float64))
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        log_line(
            f"FastICA of {len(words)} words did not converge in 200 iterations; its last "
            "result is used"
        )
    return ica.mean_.astype(np.float32), np.ascontiguousarray(ica.components_.T.astype(np.float32))


def streaming_pca(
    blocks: Callable[[], Iterable[Array]], components: int, seed: int, oversample: int = 10
) -> tuple[Array, Array]:
    """Return the mean (D,) and the leading components (D, k), by a randomized range finder and a
    Rayleigh-Ritz step.

    Halko, Martinsson, Tropp, SIAM Review 2011, algorithms 4.3 (one power) and 5.3; the data (n, D)
    are read three times, block by block. A lower rank gives fewer components.
    """
    total, count = np.zeros(0), 0
    for block in blocks():
        total = block.sum(axis=0, dtype=np.float64) + (total if count else 0)
        count += len(block)
    mean: Array = (total / count).astype(np.float32)
    components = min(components, count - 1, len(mean))
    width = min(components + oversample, len(mean))
    start = np.random.default_rng(seed).standard_normal((len(mean), width), dtype=np.float32)
    image = np.zeros_like(start)
    for block in blocks():
        centered = block - mean
        image += centered.T @ (centered @ start)
    basis = np.linalg.qr(image)[0]
    small = np.zeros((width, width))
    for block in blocks():
        projected = (block - mean) @ basis
        small += projected.T @ projected
    _, vectors = np.linalg.eigh(small)
    return mean, np.ascontiguousarray(basis @ vectors[:, ::-1][:, :components].astype(np.float32))
