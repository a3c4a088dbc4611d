"""Word vectors trained on captions."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from bifocal.text.format import Layout, Rows
from bifocal.text.tokens import tokenize
from bifocal.text.vocabulary import Vocabulary
from bifocal.text.word_vectors.word_vectors import WordVectors


@dataclass
class Word2Vec:
    """Token ids, with word vectors trained on the captions of the training split.

    Mikolov et al., "Distributed representations of words and phrases", 2013. A word that is not in the vocabulary is
    ``<unk>``, whose vector is the mean of all. Trained in one thread: the same seed gives the same bytes.

    Args:
        dim: K, of a word vector (620 in thesis 3.2.1).
        window: words on each side that are predicted.
        min_count: how often a word must occur to get a vector.
        epochs: passes over the captions.
        subsample: frequent words are skipped above this share of the text; 0 skips none (for a small vocabulary).
        algorithm: skip-gram or CBOW.
        path: a text file to train on in place of the captions, UTF-8, one sentence per line.
    """

    dim: int = 620
    window: int = 5
    min_count: int = 5
    epochs: int = 5
    subsample: float = 1e-3
    algorithm: Literal["skip-gram", "cbow"] = "skip-gram"
    path: Path | str | None = None
    table: WordVectors = field(init=False, repr=False)

    @property
    def layout(self) -> Layout:
        """Tokens, and the dimension of the vectors that they stand for."""
        return Layout("tokens", self.dim)

    def fit(self, captions: Sequence[str], seed: int) -> dict[str, float]:
        """Train on ``captions``, or on ``path``.

        Raises:
            ValueError: no word is frequent enough, or ``path`` is no text.
        """
        # Here, because it takes seconds to load and whoever reads a text store does without it.
        from gensim.models import Word2Vec as GensimWord2Vec

        sentences = [tokenize(line) for line in (captions if self.path is None else read_lines(Path(self.path)))]
        model = GensimWord2Vec(
            vector_size=self.dim,
            window=self.window,
            min_count=self.min_count,
            sg=self.algorithm == "skip-gram",
            sample=self.subsample,
            seed=seed,
            workers=1,
            hashfxn=_hash,
        )
        model.build_vocab(sentences)
        if not len(model.wv):
            raise ValueError(
                f"no word occurs {self.min_count} times in {len(sentences)} sentences: "
                "lower min_count, or train on more text"
            )
        model.train(sentences, total_examples=len(sentences), epochs=self.epochs)
        self.table = word_table(model.wv.index_to_key, model.wv.vectors)
        return {"words": len(self.table.vocabulary)}

    def rows(self, captions: Sequence[str]) -> Rows:
        """Token ids of each caption."""
        return self.table.encode(captions)

    def save(self, directory: Path) -> None:
        """Write the vocabulary and the vectors."""
        self.table.save(directory)

    def load(self, directory: Path) -> None:
        """Read what :meth:`save` wrote."""
        self.table = WordVectors.load(directory)


def word_table(words: Sequence[str], vectors: np.ndarray) -> WordVectors:
    """Those words, after the padding (zero) and ``<unk>`` (the mean of all)."""
    special = np.stack([np.zeros_like(vectors[0]), vectors.mean(axis=0)])
    return WordVectors(Vocabulary(words), np.concatenate([special, vectors]).astype(np.float32))


def read_lines(path: Path) -> list[str]:
    """The lines of a text file.

    Raises:
        ValueError: one is not UTF-8; names it.
    """
    lines = []
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                lines.append(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file first"
                ) from error
    return lines


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())
