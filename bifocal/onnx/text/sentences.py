"""Input of the text encoder from raw sentences."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime

from bifocal.onnx.files import read_json
from bifocal.onnx.sessions import Array, open_session, run_graph
from bifocal.onnx.text.captions import (
    MAX_TOKENS,
    UNKNOWN,
    NumpyVectorizer,
    Vocabulary,
    check_texts,
    spell_sentences,
    tokenize,
    unknown_words,
)
from bifocal.onnx.text.tokenizer import TOKENIZER, FixedLength, SubwordTokenizer
from bifocal.onnx.towers import TowerTokens, is_towers

ELMO = "elmo.onnx"
ARRAYS = ("idf.safetensors", "static.safetensors", "word_vectors.safetensors")
"""Files of vectorizers that are arrays."""
MODULES = {
    "FisherVectors": "bifocal.onnx.text.fisher",
    "MeanWordVectors": "bifocal.onnx.text.word2vec",
    "TFIDF": "bifocal.onnx.text.tfidf",
}
"""Modules of vectorizers in this package, imported when they are needed: most servers need no
stemmer."""
SUBWORDS = ("SentenceVectors", "TransformerTokens")
"""Vectorizers whose network is in the graph of the text encoder, which reads the ids of
subwords."""


class Reader(Protocol):
    """Inputs of a text encoder from sentences."""

    def batch(self, sentences: Sequence[str]) -> tuple[Array, ...]:
        """Return values (B, ...) of B sentences, and their lengths (B,) unless the graph needs
        none."""


class SentenceReader:
    """Converts sentences to the inputs of a text encoder, as the vectorizer of its training did."""

    def __init__(self, directory: Path) -> None:
        vocabulary, elmo = directory / Vocabulary.FILE, directory / ELMO
        self.readers: list[Reader]
        if vocabulary.is_file():
            self.readers = [Vocabulary.load(vocabulary)]
        elif elmo.is_file():
            self.readers = [_ElmoLayers(open_session(elmo))]
        elif is_towers(directory):
            self.readers = [TowerTokens(directory)]
        else:
            self.readers = open_readers(directory / "text")

    def read(self, sentences: Sequence[str]) -> list[Array]:
        """Return the inputs of the text encoder for B sentences, of each vectorizer."""
        check_texts(sentences)
        return [array for reader in self.readers for array in reader.batch(sentences)]

    def known(self, sentence: str) -> dict[str, bool] | None:
        """Return whether a vectorizer knows each word of a sentence; None if one reads subwords,
        and so knows all."""
        tokens, known = tokenize(sentence), dict[str, bool]()
        for reader in self.readers:
            if not isinstance(reader, NumpyVectorizer | Vocabulary):
                return None
            for token, is_known in reader.known(tokens).items():
                known[token] = known.get(token, False) or is_known
        return known

    def unknown(self, sentence: str) -> list[str]:
        """Return the words of a sentence that no vectorizer knows.

        Raises:
            ValueError: none of the words is known.
        """
        return unknown_words(self.known(sentence), sentence)


def open_readers(folder: Path) -> list[Reader]:
    """Return the reader of a vectorizer's folder, or one for each vectorizer of a
    ``Concatenated``."""
    config = read_json(folder / "config.json")
    name = config["name"]
    if name == "Concatenated":
        parts = sorted(
            (path for path in folder.iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        return [reader for part in parts for reader in open_readers(part)]
    if name in MODULES:
        vectorizer = getattr(import_module(MODULES[name]), name)(**config["arguments"])
        vectorizer.load(folder)
        return [vectorizer]
    file = folder / TOKENIZER
    if name in SUBWORDS:
        return [SubwordTokenizer.read(file)]
    if name == "OpenClipText" and file.is_file():
        padding = read_json(file).get("padding") or {"pad_id": 0}
        return [FixedLength(SubwordTokenizer.read(file), padding["pad_id"])]
    return [_Library(folder)]


class _ElmoLayers:
    """Layers (B, L, T, K) of ELMo."""

    def __init__(self, elmo: onnxruntime.InferenceSession) -> None:
        self.elmo = elmo

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        tokens = [
            tokenize(sentence, lower=False)[:MAX_TOKENS] or [UNKNOWN] for sentence in sentences
        ]
        symbols, words, lengths = spell_sentences(tokens, self.elmo.get_inputs()[0].shape[1])
        (values,) = run_graph(self.elmo, (symbols, words, lengths))
        # Round to float16 as the text store does, or the embeddings would differ from the evaluated
        # ones.
        return values.astype(np.float16).astype(np.float32), lengths - 2


class _Library:
    """Values of a vectorizer that needs the whole library."""

    def __init__(self, folder: Path) -> None:
        self.fitted = import_module("bifocal.text.vectorizers.base").load_vectorizer(folder)

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        values, lengths = self.fitted.vectorize(sentences)
        return values.numpy(), lengths.numpy()
