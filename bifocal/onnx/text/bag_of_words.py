"""Sentences as bags of words weighted by tf-idf, from a saved dictionary: needs neither torch nor SciPy."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from snowballstemmer import stemmer

from bifocal.onnx.text.tokens import MAX_TOKENS, tokenize
from bifocal.onnx.text.wordnet import WordNet

TERMS, WEIGHTS = "terms.json", "idf.safetensors"


@dataclass(frozen=True)
class BagOfWords:
    """The dictionary of a fitted ``TFIDF``."""

    terms: dict[str, int]  # row of each term
    idf: NDArray[np.float32]  # (K,), weight of each term
    stop_words: frozenset[str]  # words to leave out
    wordnet: WordNet | None  # for lemmas; None for Snowball's stems
    normalize: bool  # unit norm, and only the first ``MAX_TOKENS`` tokens count
    language: str = "english"  # of Snowball's stemmer

    def encode(self, sentence: str) -> tuple[NDArray[np.int32], NDArray[np.float32], int, int]:
        """Return the sorted rows and weights of a sentence's terms, and its numbers of terms and unknown terms."""
        forms = self.forms(tokenize(sentence))
        counts = Counter(self.terms[form] for form in forms if form in self.terms)
        rows = np.array(sorted(counts), dtype=np.int32)
        weights = np.array([counts[row] for row in rows.tolist()], dtype=np.float32) * self.idf[rows]
        if self.normalize and len(rows):
            weights /= np.sqrt((weights * weights).sum())
        return rows, weights, len(forms), len(forms) - counts.total()

    def vectors(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors (B, K) of B sentences; zero for a sentence without known terms."""
        vectors = np.zeros((len(sentences), len(self.terms)), dtype=np.float32)
        for number, sentence in enumerate(sentences):
            rows, weights, _, _ = self.encode(sentence)
            vectors[number, rows] = weights
        return vectors

    def batch(self, sentences: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the inputs of the text encoder for B sentences: vectors (B, K) and lengths (B,), all 1."""
        return self.vectors(sentences), np.ones(len(sentences), dtype=np.int64)

    def forms(self, tokens: Sequence[str]) -> list[str]:
        """Return the stems or lemmas of a sentence's tokens, without stop words."""
        kept = [token for token in (tokens[:MAX_TOKENS] if self.normalize else tokens) if token not in self.stop_words]
        for token in kept:
            if token not in self._known_forms:
                form = self.wordnet.lemma(token) if self.wordnet else self._stemmer.stemWord(token)
                self._known_forms[token] = form
        return [self._known_forms[token] for token in kept]

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        """Return whether each token is in the dictionary; without stop words."""
        return {token: form in self.terms for token in tokens for form in self.forms([token])}

    def truncates(self, sentence: str) -> bool:
        """Return whether the last tokens of a sentence do not count."""
        return self.normalize and len(tokenize(sentence)) > MAX_TOKENS

    @cached_property
    def _known_forms(self) -> dict[str, str]:
        # Stemming is slow: compute the form of each word once.
        return {}

    @cached_property
    def _stemmer(self) -> Any:
        return stemmer(self.language)

    def save(self, directory: Path) -> None:
        """Write the dictionary, and the nouns of WordNet, which new words need."""
        wordnet = self.wordnet
        content = {
            "terms": list(self.terms),
            "nouns": None if wordnet is None else sorted(wordnet.nouns),
            "exceptions": None if wordnet is None else dict(sorted(wordnet.exceptions.items())),
            "stop_words": sorted(self.stop_words),
            "normalize": self.normalize,
            "language": self.language,
        }
        (directory / TERMS).write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
        save_file({"idf": self.idf}, directory / WEIGHTS)

    @classmethod
    def load(cls, directory: Path) -> "BagOfWords":
        content = json.loads((directory / TERMS).read_text(encoding="utf-8"))
        irregular = {form: tuple(lemmas) for form, lemmas in (content["exceptions"] or {}).items()}
        return cls(
            terms={term: row for row, term in enumerate(content["terms"])},
            idf=load_file(directory / WEIGHTS)["idf"],
            stop_words=frozenset(content["stop_words"]),
            wordnet=None if content["nouns"] is None else WordNet(frozenset(content["nouns"]), irregular),
            normalize=content["normalize"],
            language=content["language"],
        )
