"""Captions as bags of words weighted by tf-idf."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from snowballstemmer import algorithms

from bifocal.onnx.text.bag_of_words import BagOfWords
from bifocal.onnx.text.tokens import tokenize
from bifocal.onnx.text.wordnet import WordNet
from bifocal.registry import suggest
from bifocal.text.format import EncodedCaptions, TextFormat
from bifocal.text.vectorizers.base import ignored_arguments


@dataclass
class TFIDF:
    """Sparse bags of words: tf x (ln((1 + n) / (1 + df)) + 1) with n training captions, l2-normalized.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 4 (Snowball stems); Wang, Li,
    Lazebnik, CVPR 2016, section 3.1 (WordNet lemmas, no stop words). A caption without known terms is the zero vector.

    With ``documents="images"``, all captions of an image are one bag of words, as Gordo and Larlus have it: n and df
    count images, ``fit`` takes the joined captions of each image, and the vectors of captions are not normalized, so
    that their sum over an image, l2-normalized, is the tf-idf of its bag.

    Args:
        documents: "captions" or "images": what n and df count.
        form: "stem", by Snowball's stemmer of the language, or "lemma", by WordNet.
        fallback: if WordNet is missing: "error", or "stem" to stem instead.
        stop_words: remove stop words: scikit-learn's 318 in English, the package stop-words in other
            languages, which has no list for some.
        min_count: minimum number of documents that contain a term.
        max_terms: size of the dictionary: the terms that most documents contain; None for all (Wang, Li, Lazebnik, CVPR
            2016: 3,000 for Flickr30k and 5,600 for COCO).
        language: of the captions, by its English name in lower case, such as "german"; one that Snowball stems.
        path: folder of WordNet's ``index.noun`` and ``noun.exc``, for lemmas.

    Example:
        >>> vectorizer = TFIDF()
        >>> vectorizer.fit(["A dog runs", "Dogs run on grass"], seed=0)
        {'terms': 3, 'lemmatized': 0.0}
        >>> list(vectorizer.terms)
        ['dog', 'grass', 'run']
        >>> german = TFIDF(language="german")
        >>> metrics = german.fit(["Der Hund läuft", "Die Hunde"], seed=0)
        >>> list(german.terms)
        ['hund', 'lauft']
    """

    documents: Literal["captions", "images"] = "captions"
    form: Literal["stem", "lemma"] = "stem"
    fallback: Literal["error", "stem"] = "error"
    stop_words: bool = True
    min_count: int = 1
    max_terms: int | None = None
    language: str = "english"
    path: Path | str | None = None
    bag: BagOfWords = field(init=False, repr=False)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        max_terms = arguments.get("max_terms")
        if max_terms is not None and max_terms < 1:
            yield f"max_terms is {max_terms}: expected 1 or more, or null for all terms"
        language = arguments.get("language", "english")
        if language not in algorithms():
            yield f"language {language!r}: {suggest(str(language), algorithms())}"
        elif arguments.get("stop_words", True) and not find_stop_words(language):
            yield f"there is no list of stop words in {language}: set stop_words to false"
        if language != "english" and arguments.get("form") == "lemma":
            yield f"WordNet has only English lemmas, and language is {language!r}: set form to 'stem'"
        if arguments.get("form", "stem") == "stem":
            options = {name: value for name, value in arguments.items() if value is not None}
            yield from ignored_arguments(options, ["path", "fallback"], "with form 'stem', which needs no WordNet")
        elif arguments.get("path") is not None:
            yield from ignored_arguments(arguments, ["fallback"], "with path")
        elif arguments.get("fallback", "error") == "error":
            yield "form 'lemma' needs path, the folder of WordNet's index.noun and noun.exc, or fallback 'stem'"

    @property
    def terms(self) -> dict[str, int]:
        """Row of each term; known after ``fit`` or ``load``."""
        return self.bag.terms

    @property
    def format(self) -> TextFormat:
        """Sparse vectors with one dimension per term."""
        return TextFormat("sparse", len(self.terms))

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Learn the terms and their weights from documents; the seed has no effect."""
        empty = BagOfWords(
            terms={},
            idf=np.zeros(0, dtype=np.float32),
            stop_words=find_stop_words(self.language) if self.stop_words else frozenset(),
            wordnet=self._read_wordnet() if self.form == "lemma" else None,
            normalize=self.documents == "captions",
            language=self.language,
        )
        frequency = Counter(term for caption in captions for term in {*empty.forms(tokenize(caption))})
        frequent = (term for term, count in frequency.items() if count >= self.min_count)
        # Of equally frequent terms, the first by spelling is kept.
        kept = sorted(sorted(frequent, key=lambda term: (-frequency[term], term))[: self.max_terms])
        if not kept:
            raise ValueError(
                f"no term occurs in {self.min_count} of {len(captions)} {self.documents}: decrease min_count"
            )
        counts = np.array([frequency[term] for term in kept])
        idf = (np.log((1 + len(captions)) / (1 + counts)) + 1).astype(np.float32)
        self.bag = replace(empty, terms={term: row for row, term in enumerate(kept)}, idf=idf)
        return {"terms": len(kept), "lemmatized": float(self.bag.wordnet is not None)}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the weights of the terms of each caption."""
        encoded = [self.bag.encode(caption) for caption in captions]
        counts = {
            "tokens": sum(terms for _, _, terms, _ in encoded),
            "unknown_tokens": sum(unknown for _, _, _, unknown in encoded),
            "empty_captions": sum(not len(rows) for rows, _, _, _ in encoded),
            "truncated_captions": sum(self.bag.truncates(caption) for caption in captions),
        }
        return EncodedCaptions([weights for _, weights, _, _ in encoded], [rows for rows, _, _, _ in encoded], counts)

    def save(self, directory: Path) -> None:
        self.bag.save(directory)

    def load(self, directory: Path) -> None:
        self.bag = BagOfWords.load(directory)

    def _read_wordnet(self) -> WordNet | None:
        if self.path is not None:
            return WordNet.read(Path(self.path))
        if self.fallback == "stem":
            return None
        raise FileNotFoundError(
            "lemmas need WordNet's index.noun and noun.exc (WNdb-3.0.tar.gz of wordnet.princeton.edu, or NLTK's "
            "corpora/wordnet): set path to their folder, or fallback to 'stem'"
        )


@cache
def find_stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language; none if no list is known."""
    if language == "english":
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # imported here: scikit-learn takes seconds

        english: frozenset[str] = ENGLISH_STOP_WORDS
        return english
    from stop_words import LANGUAGE_MAPPING, get_stop_words

    known = language in LANGUAGE_MAPPING.values()
    # The tokenizer keeps apostrophes only inside a word.
    return frozenset(token for word in get_stop_words(language) for token in tokenize(word)) if known else frozenset()
