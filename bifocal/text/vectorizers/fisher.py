"""Captions as Fisher vectors of their words."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_matrix
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning

from bifocal.progress import log_line, track
from bifocal.text.format import Layout, Rows
from bifocal.text.vectorizers.gaussian_mixture import Mixture, fit_mixture
from bifocal.text.vectorizers.mean_word_vectors import learn_words
from bifocal.text.vectorizers.streaming_pca import streaming_pca
from bifocal.text.word_vectors.word_vectors import WordVectors

Array = NDArray[np.float32]
WEIGHTS = "fisher.safetensors"
BLOCK = 512


@dataclass
class FisherVectors:
    """Fisher vectors of word vectors under a mixture, with power and l2 normalisation, then PCA.

    Wang, Li, Lazebnik, CVPR 2016, section 3.1, after Klein et al., CVPR 2015: independent components of 300-d words, 30
    centres, first and second order, 18,000 dimensions, PCA to 6,000. A caption without known words is what PCA makes
    of zero. A Fisher vector is a mean over words, so that each different word is computed once per block.

    Args:
        dim: of the word vectors that are trained here.
        mixture: "hglmm", each dimension of a centre Gaussian or Laplacian, or "gmm".
        centres: of the mixture.
        components: k, after PCA; fewer where there are fewer training captions.
        pca_captions: training captions that PCA sees at most, evenly spread.
        iterations: of EM.
        min_count, epochs, subsample, path: of the words, see :class:`bifocal.text.MeanWordVectors`.
    """

    dim: int = 300
    mixture: Literal["hglmm", "gmm"] = "hglmm"
    centres: int = 30
    components: int = 6000
    pca_captions: int = 150_000
    iterations: int = 20
    min_count: int = 1
    epochs: int = 5
    subsample: float = 1e-3
    path: Path | str | None = None
    table: WordVectors = field(init=False, repr=False)
    state: dict[str, np.ndarray] = field(init=False, repr=False)

    @property
    def layout(self) -> Layout:
        """A vector of as many numbers as PCA keeps."""
        return Layout("vectors", self.state["components"].shape[1])

    def fit(self, captions: Sequence[str], seed: int) -> dict[str, float]:
        """Learn words, independent components, mixture and principal components."""
        self.table, figures = learn_words(
            captions, seed, self.dim, self.min_count, self.epochs, self.subsample, self.path
        )
        tokens = self.table.encode(captions)
        counts = np.bincount(np.concatenate(tokens.values), minlength=len(self.table.vectors))[2:].astype(float)
        mean, unmixing = independent_components(self.table.vectors[2:], seed)
        self.state = {"word_mean": mean, "unmixing": unmixing}
        used = counts > 0
        mixture, history = fit_mixture(
            self._words(np.flatnonzero(used) + 2),
            counts[used],
            self.centres,
            self.mixture == "hglmm",
            seed,
            self.iterations,
        )
        self.state |= {
            "weights": mixture.weights,
            "centres": mixture.centres,
            "scales": mixture.scales,
            "gaussian": mixture.gaussian,
        }
        step = max(1, -(-len(tokens.values) // self.pca_captions))
        chosen = tokens.values[::step]

        def blocks() -> Iterator[Array]:
            for start in track(range(0, len(chosen), BLOCK), "principal components"):
                yield self.fisher(chosen[start : start + BLOCK])

        self.state["mean"], self.state["components"] = streaming_pca(blocks, self.components, seed)
        gaussian_share = float(mixture.gaussian.mean())
        return figures | {"log_likelihood": history[-1] if history else 0.0, "gaussian_share": gaussian_share}

    def fisher(self, sentences: Sequence[np.ndarray]) -> Array:
        """Fisher vectors before PCA: token ids of B sentences -> (B, 2 centres dim)."""
        known = [ids[ids > 1] for ids in sentences]
        words, places = np.unique(np.concatenate(known), return_inverse=True)
        ends = np.cumsum([0, *(len(ids) for ids in known)])
        shares = np.repeat([1 / max(len(ids), 1) for ids in known], [len(ids) for ids in known]).astype(np.float32)
        mean = csr_matrix((shares, places, ends), (len(known), len(words)))
        vectors: Array = mean @ self._mixture.fisher_terms(self._words(words)).astype(np.float32)
        vectors = np.sign(vectors) * np.sqrt(np.abs(vectors))
        normed: Array = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return normed

    def rows(self, captions: Sequence[str]) -> Rows:
        """The Fisher vector of each caption, after PCA."""
        tokens = self.table.encode(captions)
        reduced: list[Array] = []
        for start in range(0, len(captions), BLOCK):
            block = self.fisher(tokens.values[start : start + BLOCK]) - self.state["mean"]
            reduced += list(block @ self.state["components"])
        return Rows(reduced, counts=tokens.counts)

    def save(self, directory: Path) -> None:
        """Write the words and all that was fitted on them."""
        self.table.save(directory)
        save_file({name: np.ascontiguousarray(value) for name, value in self.state.items()}, directory / WEIGHTS)

    def load(self, directory: Path) -> None:
        """Read what :meth:`save` wrote."""
        self.table = WordVectors.load(directory)
        self.state = load_file(directory / WEIGHTS)

    @property
    def _mixture(self) -> Mixture:
        return Mixture(*(self.state[name] for name in ("weights", "centres", "scales", "gaussian")))

    def _words(self, ids: np.ndarray) -> NDArray[np.float64]:
        words: NDArray[np.float64] = (self.table.vectors[ids] - self.state["word_mean"]) @ self.state["unmixing"]
        return words.astype(np.float64)


def independent_components(words: Array, seed: int) -> tuple[Array, Array]:
    """Mean (K,) and unmixing matrix (K, at most K) of unit variance, by FastICA."""
    count = min(words.shape[1], len(words) - 1)
    ica = FastICA(count, random_state=seed, whiten="unit-variance", max_iter=200, tol=1e-3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        ica.fit(words.astype(np.float64))
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        log_line(f"independent components of {len(words)} words: not converged after 200 steps, taken as they are")
    return ica.mean_.astype(np.float32), np.ascontiguousarray(ica.components_.T.astype(np.float32))
