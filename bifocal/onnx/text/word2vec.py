"""Word vectors trained on captions: token ids with them, and the mean of a caption's word
vectors."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat, ignored_arguments, tokenize
from bifocal.onnx.text.pretrained_word_vectors import PretrainedWordVectors
from bifocal.onnx.text.word_vectors import WordVectorizer, WordVectors

SKIP_GRAM_ARGUMENTS = ("dim", "epochs", "subsample")
"""Arguments that only the training of word vectors uses."""


@dataclass
class Word2Vec(WordVectorizer):
    """Token ids, with word vectors trained on the training captions.

    Mikolov et al., "Distributed representations of words and phrases", 2013. Words outside the
    vocabulary are ``<unk>``, whose vector is the mean of all vectors. Training uses one thread: the
    same seed gives the same bytes.

    Args:
        dim: K, dimension of a word vector (620 in thesis 3.2.1).
        window: number of words on each side that are predicted.
        min_count: minimum number of occurrences of a word in the vocabulary.
        epochs: passes over the captions.
        subsample: words with a relative frequency above this threshold are randomly skipped; 0
            skips none (for a small vocabulary).
        algorithm: skip-gram or CBOW.
        path: UTF-8 text file with one sentence per line, used for training instead of the captions.

    Example:
        >>> vectorizer = Word2Vec(dim=4, min_count=1, epochs=1)
        >>> vectorizer.fit(["a dog runs", "a cat runs"], seed=0)
        {'words': 6}
        >>> [len(tokens) for tokens in vectorizer.transform(["a dog", "a small dog"]).values]
        [2, 3]
    """

    dim: int = 620
    window: int = 5
    min_count: int = 5
    epochs: int = 5
    subsample: float = 1e-3
    algorithm: Literal["skip-gram", "cbow"] = "skip-gram"
    path: Path | str | None = None

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Train on ``captions``, or on the file ``path``."""
        # Imported here: gensim loads in seconds, and readers of a text store do not need it.
        from gensim.models import Word2Vec as GensimWord2Vec

        sentences = [
            tokenize(line)
            for line in (captions if self.path is None else read_lines(Path(self.path)))
        ]
        model = GensimWord2Vec(
            vector_size=self.dim,
            window=self.window,
            min_count=self.min_count,
            sg=self.algorithm == "skip-gram",
            sample=self.subsample,
            seed=seed,
            workers=1,
            hashfxn=lambda text: zlib.crc32(
                text.encode()
            ),  # gensim's default, hash(), differs between processes
        )
        model.build_vocab(sentences)
        if not len(model.wv):
            raise ValueError(
                f"no word occurs {self.min_count} times in {len(sentences)} sentences: "
                "decrease min_count or train on more text"
            )
        model.train(sentences, total_examples=len(sentences), epochs=self.epochs)
        self.word_vectors = WordVectors.from_words(model.wv.index_to_key, model.wv.vectors)
        return {"words": len(self.word_vectors.vocabulary)}


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file."""
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


@dataclass
class CaptionVectors(WordVectorizer):
    """Base of one vector per caption from the vectors of its words: trained on the training
    captions by skip-gram, or read from the file ``path``."""

    dim: int = 300
    min_count: int = 1
    epochs: int = 5
    subsample: float = 1e-3
    path: Path | str | None = None

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        if arguments.get("path") is not None:
            yield from ignored_arguments(
                arguments, SKIP_GRAM_ARGUMENTS, "with path, which gives the word vectors"
            )

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Train or read the word vectors."""
        words: PretrainedWordVectors | Word2Vec
        if self.path is not None:
            words = PretrainedWordVectors(min_count=self.min_count, path=self.path)
        else:
            words = Word2Vec(
                dim=self.dim,
                min_count=self.min_count,
                epochs=self.epochs,
                subsample=self.subsample,
            )
        metrics = words.fit(captions, seed)
        self.word_vectors = words.word_vectors
        return metrics


@dataclass
class MeanWordVectors(CaptionVectors):
    """Mean of the word vectors of a caption, without unknown words; zero for a caption without
    known words.

    Wang, Li, Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016,
    section 3.1. The word vectors are trained on the training captions by skip-gram, or read from a
    file.

    Args:
        dim: K, dimension of the trained word vectors.
        min_count: minimum number of occurrences of a word in the training captions.
        epochs: passes of skip-gram over the captions.
        subsample: as for ``Word2Vec``.
        path: file of word vectors, as for ``PretrainedWordVectors``; None trains them.

    Example:
        >>> vectorizer = MeanWordVectors(dim=4, epochs=1)
        >>> metrics = vectorizer.fit(["a dog runs", "a cat runs"], seed=0)
        >>> vectorizer.transform(["a dog"]).values[0].shape
        (4,)
    """

    @property
    def format(self) -> TextFormat:
        return TextFormat("vectors", self.word_vectors.dim)

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the mean vector of each caption."""
        tokens = super().transform(captions)
        means = []
        for ids in tokens.values:
            known = ids[ids > 1]
            means.append(self.word_vectors.vectors[known].sum(axis=0) / max(len(known), 1))
        return EncodedCaptions(means, counts=tokens.counts)
