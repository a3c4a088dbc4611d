"""Input of the text encoder from raw sentences."""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import onnxruntime

from bifocal.onnx.damage import read_json
from bifocal.onnx.sessions import Array, open_session, run_graph
from bifocal.onnx.text.spelling import spell_sentences
from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer, pad
from bifocal.onnx.text.tokens import MAX_TOKENS, UNKNOWN, tokenize
from bifocal.onnx.text.vocabulary import Vocabulary
from bifocal.onnx.towers import TowerTokens, is_towers

ELMO = "elmo.onnx"
ARRAYS = ("idf.safetensors", "static.safetensors", "word_vectors.safetensors")
"""Files of vectorizers that are arrays."""


class Reader(Protocol):
    """Inputs of a text encoder from sentences."""

    def batch(self, sentences: Sequence[str]) -> tuple[Array, ...]:
        """Return values (B, ...) of B sentences, and their lengths (B,) unless the graph needs none."""


@runtime_checkable
class KnownWords(Protocol):
    """A reader with a fixed set of words."""

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each token of a sentence is known. Stop words are left out."""


class SentenceReader:
    """Converts sentences to the inputs of a text encoder, as the vectorizer of its training did; a vectorizer that is
    not in ``READERS`` needs the whole library.
    """

    def __init__(self, directory: Path) -> None:
        vocabulary, elmo = directory / Vocabulary.FILE, directory / ELMO
        self.readers: list[Reader]
        if vocabulary.is_file():
            self.readers = [_TokenIds(Vocabulary.load(vocabulary))]
        elif elmo.is_file():
            self.readers = [_ElmoLayers(open_session(elmo))]
        elif is_towers(directory):
            self.readers = [TowerTokens(directory)]
        else:
            self.readers = open_readers(directory / "text")

    def read(self, sentences: Sequence[str]) -> list[Array]:
        """Return the inputs of the text encoder for B sentences, of each vectorizer."""
        return [array for reader in self.readers for array in reader.batch(sentences)]

    def known(self, sentence: str) -> dict[str, bool] | None:
        """Return whether a vectorizer knows each word of a sentence; None if one reads subwords, and so knows all."""
        tokens, known = tokenize(sentence), dict[str, bool]()
        for reader in self.readers:
            if not isinstance(reader, KnownWords):
                return None
            for token, is_known in reader.known(tokens).items():
                known[token] = known.get(token, False) or is_known
        return known

    def unknown(self, sentence: str) -> list[str]:
        """Return the words of a sentence that no vectorizer knows.

        Raises:
            ValueError: none of the words is known.
        """
        known = self.known(sentence)
        if known is None:
            return []
        if not any(known.values()):
            raise ValueError(f"the model knows none of the words of {sentence[:80]!r}: use words of its captions")
        return [token for token, is_known in known.items() if not is_known]


def open_readers(folder: Path) -> list[Reader]:
    """Return the reader of a vectorizer's folder, or one for each vectorizer of a ``Concatenated``."""
    name = read_json(folder / "config.json")["name"]
    if name == "Concatenated":
        parts = sorted((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        return [reader for part in parts for reader in open_readers(part)]
    return [READERS[name](folder) if name in READERS else _Library(folder)]


def _subwords(folder: Path) -> Reader:
    return SubwordTokenizer.read(folder / TOKENIZER)


def _clip(folder: Path) -> Reader:
    file = folder / TOKENIZER
    if not file.is_file():
        return _Library(folder)
    padding = read_json(file).get("padding") or {"pad_id": 0}
    return FixedLength(SubwordTokenizer.read(file), padding["pad_id"])


# Imported when they are needed: a server of another model needs no stemmer.
READERS: dict[str, Callable[[Path], Reader]] = {
    "FisherVectors": lambda folder: import_module("bifocal.onnx.text.fisher").FisherReader.load(folder),
    "MeanWordVectors": lambda folder: import_module("bifocal.onnx.text.word_means").WordMeans.load(folder),
    "OpenClipText": _clip,
    "SentenceVectors": _subwords,
    "StaticVectors": lambda folder: import_module("bifocal.onnx.text.token_means").TokenMeans.load(folder),
    "TFIDF": lambda folder: import_module("bifocal.onnx.text.bag_of_words").BagOfWords.load(folder),
    "Subwords": _subwords,
    "TransformerTokens": _subwords,
}
"""Readers that need no torch, by the name of the vectorizer."""


class FixedLength:
    """Ids of subwords (B, T), padded to the longest sentence of the network."""

    def __init__(self, tokenizer: SubwordTokenizer, padding: int = 0) -> None:
        self.tokenizer, self.length = tokenizer, int((tokenizer.tokenizer.truncation or {})["max_length"])
        self.padding = padding

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        rows = self.tokenizer.encode(sentences)[0]
        ids = np.full((len(rows), self.length), self.padding, dtype=np.int64)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
        return ids, np.array([len(row) for row in rows], dtype=np.int64)


class _TokenIds:
    """Token ids (B, T), padded with 0."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        return pad([np.array(self.vocabulary.encode(tokenize(s)[:MAX_TOKENS] or [UNKNOWN])) for s in sentences])

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        return self.vocabulary.known(tokens)


class _ElmoLayers:
    """Layers (B, L, T, K) of ELMo."""

    def __init__(self, elmo: onnxruntime.InferenceSession) -> None:
        self.elmo = elmo

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        tokens = [tokenize(sentence, lower=False)[:MAX_TOKENS] or [UNKNOWN] for sentence in sentences]
        symbols, words, lengths = spell_sentences(tokens, self.elmo.get_inputs()[0].shape[1])
        (values,) = run_graph(self.elmo, (symbols, words, lengths))
        # Round to float16 as the text store does, or the embeddings would differ from the evaluated ones.
        return values.astype(np.float16).astype(np.float32), lengths - 2


class _Library:
    """Values of a vectorizer that needs the whole library."""

    def __init__(self, folder: Path) -> None:
        self.fitted = import_module("bifocal.text.vectorizers.base").load_vectorizer(folder)

    def batch(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        values, lengths = self.fitted.vectorize(sentences)
        return values.numpy(), lengths.numpy()
