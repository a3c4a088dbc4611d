"""Captions as means of static token vectors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from bifocal.onnx.text.token_means import TokenMeans
from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer
from bifocal.onnx.text.vocabulary import Vocabulary
from bifocal.text.format import EncodedCaptions, TextFormat
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.vectorizers.base import ignored_arguments
from bifocal.text.vectorizers.static.pretrained_word_vectors import frequent_words
from bifocal.text.word_vectors.files import read_word_vectors

SIF = 1e-4
"""Coefficient a of the weights a / (a + p): Arora et al., ICLR 2017, section 3."""
DIM = 256
STATIC = "embeddings"
"""Tensor of the token vectors in a file of model2vec."""


@dataclass
class StaticVectors:
    """Mean of static vectors of subwords or words, l2-normalized; zero for a caption without known tokens.

    Tulkens and van Dongen, "Model2Vec: fast state-of-the-art static embeddings", 2024. ``path`` decides the source:

    - a folder of model2vec (``tokenizer.json``, ``model.safetensors`` with the tensor ``embeddings``);
    - a folder of a transformer, which is distilled: the last state of each single token between the special tokens,
      their mean, principal components, and a weight for each token by Zipf's law;
    - a file of word vectors, such as GloVe, for the words that are in it and in the training captions.

    Args:
        dim: K, principal components of a distilled transformer.
        weights: "source", as published or distilled (word vectors have none), or "idf", which
            multiplies them by ln((1 + n) / (1 + df)) + 1 with n training captions.
        path: folder or file; required.

    Example:
        >>> from bifocal.text.transformer.tiny import write_tiny_transformer
        >>> vectorizer = StaticVectors(dim=3, path=write_tiny_transformer(["a dog runs"], dim=8))
        >>> metrics = vectorizer.fit(["a dog"], seed=0)
        >>> vectorizer.transform(["a dog runs"]).values[0].shape
        (3,)
    """

    dim: int = DIM
    weights: Literal["source", "idf"] = "source"
    path: Path | str | None = None
    means: TokenMeans = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        path = arguments.get("path")
        if path is None:
            yield "path is missing: set it to a folder of model2vec or of a transformer, or to a file of word vectors"
        elif Path(path).is_file() or _static_file(Path(path)) is not None:
            yield from ignored_arguments(arguments, ["dim"], "unless path is a transformer to distill")

    @property
    def format(self) -> TextFormat:
        return TextFormat("vectors", int(self.means.vectors.shape[1]))

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Read or distill the vectors, and weigh them by the captions if ``weights`` is "idf"."""
        if self.path is None:
            raise ValueError("StaticVectors needs path: a folder of model2vec or of a transformer, or word vectors")
        path = Path(self.path)
        file = _static_file(path)
        if file is not None:
            self.means = TokenMeans(_without_truncation(path), read_static(file))
        elif path.is_dir():
            self.means = distill(TransformerFolder.read(path), self.dim)
        else:
            self.means = _words(path, captions)
        if self.weights == "idf":
            frequency = np.zeros(len(self.means.vectors))
            for ids in self.means.encode(captions)[0]:
                frequency[np.unique(ids)] += 1
            idf = np.log((1 + len(captions)) / (1 + frequency)) + 1
            self.means.vectors = self.means.vectors * idf[:, None].astype(np.float32)
        return {"words": len(self.means.vectors)}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        rows, counts = self.means.encode(captions)
        return EncodedCaptions(list(self.means.means(rows)), counts=counts)

    def save(self, directory: Path) -> None:
        self.means.save(directory)

    def load(self, directory: Path) -> None:
        self.means = TokenMeans.load(directory)


def read_static(file: Path) -> NDArray[np.float32]:
    """Return the token vectors (V, K) of a file of model2vec, with their weights."""
    tensors = load_file(file)
    vectors: NDArray[np.float32] = tensors[STATIC].astype(np.float32)
    if "mapping" in tensors:  # several tokens share a vector
        vectors = vectors[tensors["mapping"]]
    if "weights" in tensors:
        vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
    return vectors


def distill(folder: TransformerFolder, dim: int) -> TokenMeans:
    """Return static vectors of all tokens of a transformer, by at most ``dim`` principal components."""
    from bifocal.text.transformer.network import token_vectors  # imports torch

    tokenizer = _without_truncation(folder.transformer)
    vectors = token_vectors(folder, tokenizer)
    centered = vectors - vectors.mean(axis=0)
    _, components = np.linalg.eigh(centered.T @ centered)
    reduced = centered @ components[:, ::-1][:, :dim]
    return TokenMeans(tokenizer, (reduced * zipf_weights(len(vectors))[:, None]).astype(np.float32))


def zipf_weights(count: int) -> NDArray[np.float64]:
    """Return weights a / (a + p) of tokens whose ids ascend with their rank; p is proportional to 1 / (rank + 1)."""
    probability = 1 / np.arange(2, count + 2)
    weights: NDArray[np.float64] = SIF / (SIF + probability / probability.sum())
    return weights


def _static_file(path: Path) -> Path | None:
    """Return the weights of a folder of model2vec; None for other folders and for files."""
    from safetensors import safe_open

    file = path / "model.safetensors"
    if file.is_file():
        with safe_open(file, "numpy") as tensors:
            return file if STATIC in tensors.keys() else None  # noqa: SIM118 - no mapping
    return None


def _without_truncation(folder: Path) -> SubwordTokenizer:
    tokenizer = SubwordTokenizer.read(folder / TOKENIZER)
    tokenizer.tokenizer.no_truncation()
    return tokenizer


def _words(path: Path, captions: Sequence[str]) -> TokenMeans:
    frequent = frequent_words(captions, 1)
    file = read_word_vectors(path, frequent)
    words = [word for word in frequent if word in file.vectors]
    if not words:
        raise ValueError(f"{path} has none of the {len(frequent)} words of the captions: check its language")
    vectors = np.stack([file.vectors[word] for word in words])
    return TokenMeans(Vocabulary(words), np.concatenate([np.zeros((2, file.dim), np.float32), vectors]))
