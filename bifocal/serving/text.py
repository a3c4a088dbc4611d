"""Input of the text encoder from raw sentences."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from bifocal.serving.sessions import open_session, run_graph
from bifocal.text.spelling import spell_sentences
from bifocal.text.tokens import MAX_TOKENS, UNKNOWN, tokenize
from bifocal.text.vocabulary import Vocabulary

Array = NDArray[Any]
ELMO = "elmo.onnx"


class SentenceReader:
    """Converts sentences to the inputs of a text encoder, as the vectorizer of its training did.

    A vocabulary gives token ids, ``elmo.onnx`` contextual vectors; both need no other package. Other vectorizers are in
    the folder ``text`` and need the whole library.

    Args:
        directory: directory of the graphs, as the stage that exports them writes it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        vocabulary, elmo = directory / Vocabulary.FILE, directory / ELMO
        self.vocabulary = Vocabulary.load(vocabulary) if vocabulary.is_file() else None
        self.elmo = open_session(elmo) if elmo.is_file() else None

    def read(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return values and lengths (B,) of B sentences."""
        if self.vocabulary is not None:
            return _token_ids(self.vocabulary, sentences)
        if self.elmo is not None:
            return _layers(self.elmo, sentences)
        vectorizers = import_module("bifocal.text.vectorizers.base")
        values, lengths = vectorizers.load_vectorizer(self.directory / "text").vectorize(sentences)
        return values.numpy(), lengths.numpy()


def _token_ids(vocabulary: Vocabulary, sentences: Sequence[str]) -> tuple[Array, Array]:
    """Return token ids (B, T), padded with 0, and lengths (B,)."""
    ids = [vocabulary.encode(tokenize(sentence)[:MAX_TOKENS] or [UNKNOWN]) for sentence in sentences]
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    values = np.zeros((len(ids), lengths.max()), dtype=np.int64)
    for row, tokens in enumerate(ids):
        values[row, : len(tokens)] = tokens
    return values, lengths


def _layers(elmo: onnxruntime.InferenceSession, sentences: Sequence[str]) -> tuple[Array, Array]:
    """Return the layers (B, L, T, K) of ELMo and lengths (B,)."""
    tokens = [tokenize(sentence, lower=False)[:MAX_TOKENS] or [UNKNOWN] for sentence in sentences]
    symbols, words, lengths = spell_sentences(tokens, elmo.get_inputs()[0].shape[1])
    (values,) = run_graph(elmo, (symbols, words, lengths))
    # Round to float16 as the text store does, or the embeddings would differ from the evaluated ones.
    return values.astype(np.float16).astype(np.float32), lengths - 2
