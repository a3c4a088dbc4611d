"""Captions as means of static token vectors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from bifocal.onnx.text.captions import (
    MAX_TOKENS,
    EncodedCaptions,
    NumpyVectorizer,
    TextFormat,
    Vocabulary,
    ignored_arguments,
)
from bifocal.onnx.text.pretrained_word_vectors import frequent_words, read_word_vectors
from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer
from bifocal.onnx.text.words import tokenize

SIF = 1e-4
"""Coefficient a of the weights a / (a + p): Arora et al., ICLR 2017, section 3."""
DIM = 256
STATIC = "embeddings"
"""Tensor of the token vectors in a file of model2vec."""
VECTORS = "static.safetensors"


@dataclass
class StaticVectors(NumpyVectorizer):
    """Mean of static vectors of subwords or words, l2-normalized; zero for a caption without known
    tokens.

    Tulkens and van Dongen, "Model2Vec: fast state-of-the-art static embeddings", 2024. ``path``
    decides the source:

    - a folder of model2vec (``tokenizer.json``, ``model.safetensors`` with the tensor
      ``embeddings``);
    - a folder of a transformer, which is distilled: the last state of each single token between the
      special tokens, their mean, principal components, and a weight for each token by Zipf's law;
    - a file of word vectors, such as GloVe, for the words that are in it and in the training
      captions.

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
    tokens: SubwordTokenizer | Vocabulary = field(init=False, repr=False)  # subwords, or words
    vectors: NDArray[np.float32] = field(
        init=False, repr=False
    )  # (V, K), with the weights of the tokens

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        path = arguments.get("path")
        if path is None:
            yield (
                "path is missing: set it to a folder of model2vec or of a transformer, or to a "
                "file of word vectors"
            )
        elif Path(path).is_file() or _static_file(Path(path)) is not None:
            yield from ignored_arguments(
                arguments, ["dim"], "unless path is a transformer to distill"
            )

    @property
    def format(self) -> TextFormat:
        return TextFormat("vectors", int(self.vectors.shape[1]))

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Read or distill the vectors, and weigh them by the captions if ``weights`` is "idf"."""
        if self.path is None:
            raise ValueError(
                "StaticVectors needs path: a folder of model2vec or of a transformer, or word "
                "vectors"
            )
        path = Path(self.path)
        file = _static_file(path)
        if file is not None:
            self.tokens, self.vectors = _without_truncation(path), read_static(file)
        elif path.is_dir():
            self.tokens, self.vectors = distill(path, self.dim)
        else:
            self.tokens, self.vectors = _words(path, captions)
        if self.weights == "idf":
            frequency = np.zeros(len(self.vectors))
            for ids in self._known_ids(captions)[0]:
                frequency[np.unique(ids)] += 1
            idf = np.log((1 + len(captions)) / (1 + frequency)) + 1
            self.vectors = self.vectors * idf[:, None].astype(np.float32)
        return {"words": len(self.vectors)}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the mean vector of each caption, divided by its norm; zero without known
        tokens."""
        rows, counts = self._known_ids(captions)
        sums = np.zeros((len(rows), self.vectors.shape[1]), dtype=np.float32)
        for number, ids in enumerate(rows):
            sums[number] = self.vectors[ids].sum(axis=0)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        return EncodedCaptions(
            list((sums / np.where(norms > 0, norms, 1)).astype(np.float32)), counts=counts
        )

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        return {
            word: len(ids) > 0 for word, ids in zip(tokens, self._known_ids(tokens)[0], strict=True)
        }

    def _known_ids(self, captions: Sequence[str]) -> tuple[list[NDArray[np.int32]], dict[str, int]]:
        """Return the known token ids of each caption, and token counts."""
        if isinstance(self.tokens, SubwordTokenizer):
            rows, unknown = self.tokens.words(captions), self.tokens.unknown
            known = [ids[ids != unknown] for ids in rows]
        else:
            rows = [
                np.array(self.tokens.encode(tokenize(text)[:MAX_TOKENS]), dtype=np.int32)
                for text in captions
            ]
            known = [ids[ids > 1] for ids in rows]
        counts = {
            "tokens": sum(len(ids) for ids in rows),
            "unknown_tokens": sum(len(ids) for ids in rows) - sum(len(ids) for ids in known),
            "empty_captions": sum(not len(ids) for ids in known),
        }
        return known, counts

    def save(self, directory: Path) -> None:
        file = TOKENIZER if isinstance(self.tokens, SubwordTokenizer) else Vocabulary.FILE
        self.tokens.save(directory / file)
        save_file({"vectors": np.ascontiguousarray(self.vectors)}, directory / VECTORS)

    def load(self, directory: Path) -> None:
        file = directory / Vocabulary.FILE
        self.tokens = (
            Vocabulary.load(file)
            if file.is_file()
            else SubwordTokenizer.read(directory / TOKENIZER)
        )
        self.vectors = load_file(directory / VECTORS)["vectors"]


def read_static(file: Path) -> NDArray[np.float32]:
    """Return the token vectors (V, K) of a file of model2vec, with their weights."""
    tensors = load_file(file)
    vectors: NDArray[np.float32] = tensors[STATIC].astype(np.float32)
    if "mapping" in tensors:  # several tokens share a vector
        vectors = vectors[tensors["mapping"]]
    if "weights" in tensors:
        vectors = vectors * tensors["weights"].astype(np.float32)[:, None]
    return vectors


def distill(path: Path, dim: int) -> tuple[SubwordTokenizer, NDArray[np.float32]]:
    """Return all tokens of a transformer and static vectors, by at most ``dim`` principal
    components."""
    # By its name: only this fit needs torch and the rest of the library.
    transformer = import_module("bifocal.text.transformer.network")
    folder = transformer.TransformerFolder.read(path)
    tokenizer = _without_truncation(folder.transformer)
    vectors = transformer.token_vectors(folder, tokenizer)
    centered = vectors - vectors.mean(axis=0)
    _, components = np.linalg.eigh(centered.T @ centered)
    reduced = centered @ components[:, ::-1][:, :dim]
    return tokenizer, (reduced * zipf_weights(len(vectors))[:, None]).astype(np.float32)


def zipf_weights(count: int) -> NDArray[np.float64]:
    """Return weights a / (a + p) of tokens whose ids ascend with their rank; p is proportional to 1
    / (rank + 1)."""
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


def _words(path: Path, captions: Sequence[str]) -> tuple[Vocabulary, NDArray[np.float32]]:
    frequent = frequent_words(captions, 1)
    file = read_word_vectors(path, frequent)
    words = [word for word in frequent if word in file.vectors]
    if not words:
        raise ValueError(
            f"{path} has none of the {len(frequent)} words of the captions: check its language"
        )
    vectors = np.stack([file.vectors[word] for word in words])
    return Vocabulary(words), np.concatenate([np.zeros((2, file.dim), np.float32), vectors])
