"""Captions as bags of words weighted by tf-idf, and WordNet's rules for lemmas."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from snowballstemmer import algorithms, stemmer

from bifocal.onnx.files import read_json
from bifocal.onnx.text.captions import (
    MAX_TOKENS,
    EncodedCaptions,
    NumpyVectorizer,
    TextFormat,
    ignored_arguments,
    tokenize,
)

TERMS, WEIGHTS = "terms.json", "idf.safetensors"
SUFFIXES = (
    ("s", ""),
    ("ses", "s"),
    ("ves", "f"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
)
"""Noun suffixes and their replacements, from WordNet's ``morphy``; NLTK's lemmatizer uses them by
default."""
FILES = ("index.noun", "noun.exc")


@dataclass
class TFIDF(NumpyVectorizer):
    """Sparse bags of words: tf x (ln((1 + n) / (1 + df)) + 1) with n training captions,
    l2-normalized.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 4 (Snowball
    stems); Wang, Li, Lazebnik, CVPR 2016, section 3.1 (WordNet lemmas, no stop words). A caption
    without known terms is the zero vector.

    With ``documents="images"``, all captions of an image are one bag of words, as Gordo and Larlus
    have it: n and df count images, ``fit`` takes the joined captions of each image, and the vectors
    of captions are not normalized, so that their sum over an image, l2-normalized, is the tf-idf of
    its bag.

    Args:
        documents: "captions" or "images": what n and df count.
        form: "stem", by Snowball's stemmer of the language, or "lemma", by WordNet.
        fallback: if WordNet is missing: "error", or "stem" to stem instead.
        stop_words: remove stop words: scikit-learn's 318 in English, the package stop-words in
            other languages, which has no list for some.
        min_count: minimum number of documents that contain a term.
        max_terms: size of the dictionary: the terms that most documents contain; None for all
            (Wang, Li, Lazebnik, CVPR
            2016: 3,000 for Flickr30k and 5,600 for COCO).
        language: of the captions, by its English name in lower case, such as "german"; one that
            Snowball stems.
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
    terms: dict[str, int] = field(init=False, repr=False)  # row of each of the K terms
    idf: NDArray[np.float32] = field(init=False, repr=False)  # (K,), weight of each term
    removed: frozenset[str] = field(init=False, repr=False)  # stop words
    wordnet: "WordNet | None" = field(init=False, repr=False)  # for lemmas; None for stems

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        from bifocal.registry import suggest  # exported models do not contain it

        max_terms = arguments.get("max_terms")
        if max_terms is not None and max_terms < 1:
            yield f"max_terms is {max_terms}: expected 1 or more, or null for all terms"
        language = arguments.get("language", "english")
        if language not in algorithms():
            yield f"language {language!r}: {suggest(str(language), algorithms())}"
        elif arguments.get("stop_words", True) and not find_stop_words(language):
            yield f"there is no list of stop words in {language}: set stop_words to false"
        if language != "english" and arguments.get("form") == "lemma":
            yield (
                f"WordNet has only English lemmas, and language is {language!r}: set form to 'stem'"
            )
        if arguments.get("form", "stem") == "stem":
            options = {name: value for name, value in arguments.items() if value is not None}
            yield from ignored_arguments(
                options, ["path", "fallback"], "with form 'stem', which needs no WordNet"
            )
        elif arguments.get("path") is not None:
            yield from ignored_arguments(arguments, ["fallback"], "with path")
        elif arguments.get("fallback", "error") == "error":
            yield (
                "form 'lemma' needs path, the folder of WordNet's index.noun and noun.exc, or "
                "fallback 'stem'"
            )

    @property
    def format(self) -> TextFormat:
        """Sparse vectors with one dimension per term."""
        return TextFormat("sparse", len(self.terms))

    @property
    def normalize(self) -> bool:
        """Whether vectors have unit norm, and only the first ``MAX_TOKENS`` tokens count."""
        return self.documents == "captions"

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Learn the terms and their weights from documents; the seed has no effect."""
        self.removed = find_stop_words(self.language) if self.stop_words else frozenset()
        self.wordnet = self._read_wordnet() if self.form == "lemma" else None
        frequency = Counter(
            term for caption in captions for term in {*self.forms(tokenize(caption))}
        )
        frequent = (term for term, count in frequency.items() if count >= self.min_count)
        # Of equally frequent terms, the first by spelling is kept.
        kept = sorted(sorted(frequent, key=lambda term: (-frequency[term], term))[: self.max_terms])
        if not kept:
            raise ValueError(
                f"no term occurs in {self.min_count} of {len(captions)} {self.documents}: "
                "decrease min_count"
            )
        counts = np.array([frequency[term] for term in kept])
        self.terms = {term: row for row, term in enumerate(kept)}
        self.idf = (np.log((1 + len(captions)) / (1 + counts)) + 1).astype(np.float32)
        return {"terms": len(kept), "lemmatized": float(self.wordnet is not None)}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the weights of the terms of each caption."""
        counts = {"tokens": 0, "unknown_tokens": 0, "empty_captions": 0, "truncated_captions": 0}
        values, indices = [], []
        for caption in captions:
            tokens = tokenize(caption)
            forms = self.forms(tokens)
            found = Counter(self.terms[form] for form in forms if form in self.terms)
            rows = np.array(sorted(found), dtype=np.int32)
            weights = (
                np.array([found[row] for row in rows.tolist()], dtype=np.float32) * self.idf[rows]
            )
            if self.normalize and len(rows):
                weights /= np.sqrt((weights * weights).sum())
            values.append(weights)
            indices.append(rows)
            counts["tokens"] += len(forms)
            counts["unknown_tokens"] += len(forms) - found.total()
            counts["empty_captions"] += not found
            counts["truncated_captions"] += self.normalize and len(tokens) > MAX_TOKENS
        return EncodedCaptions(values, indices, counts)

    def forms(self, tokens: Sequence[str]) -> list[str]:
        """Return the stems or lemmas of a sentence's tokens, without stop words."""
        kept = [
            token
            for token in (tokens[:MAX_TOKENS] if self.normalize else tokens)
            if token not in self.removed
        ]
        for token in kept:
            if token not in self._known_forms:
                form = self.wordnet.lemma(token) if self.wordnet else self._stemmer.stemWord(token)
                self._known_forms[token] = form
        return [self._known_forms[token] for token in kept]

    def known(self, tokens: Sequence[str]) -> dict[str, bool]:
        return {token: form in self.terms for token in tokens for form in self.forms([token])}

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
            "stop_words": sorted(self.removed),
            "normalize": self.normalize,
            "language": self.language,
        }
        (directory / TERMS).write_text(
            json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8"
        )
        save_file({"idf": self.idf}, directory / WEIGHTS)

    def load(self, directory: Path) -> None:
        content = read_json(directory / TERMS)
        irregular = {form: tuple(lemmas) for form, lemmas in (content["exceptions"] or {}).items()}
        self.terms = {term: row for row, term in enumerate(content["terms"])}
        self.idf = load_file(directory / WEIGHTS)["idf"]
        self.removed = frozenset(content["stop_words"])
        self.wordnet = (
            None if content["nouns"] is None else WordNet(frozenset(content["nouns"]), irregular)
        )

    def _read_wordnet(self) -> "WordNet | None":
        if self.path is not None:
            return WordNet.read(Path(self.path))
        if self.fallback == "stem":
            return None
        raise FileNotFoundError(
            "lemmas need WordNet's index.noun and noun.exc (WNdb-3.0.tar.gz of "
            "wordnet.princeton.edu, or NLTK's corpora/wordnet): set path to their folder, or "
            "fallback to 'stem'"
        )


@cache
def find_stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language; none if no list is known."""
    if language == "english":
        from sklearn.feature_extraction.text import (
            ENGLISH_STOP_WORDS,
        )  # imported here: scikit-learn takes seconds

        english: frozenset[str] = ENGLISH_STOP_WORDS
        return english
    from stop_words import LANGUAGE_MAPPING, get_stop_words

    known = language in LANGUAGE_MAPPING.values()
    # The tokenizer keeps apostrophes only inside a word.
    return (
        frozenset(token for word in get_stop_words(language) for token in tokenize(word))
        if known
        else frozenset()
    )


@dataclass(frozen=True)
class WordNet:
    """Nouns and irregular plurals of WordNet."""

    nouns: frozenset[str]  # all lemmas
    exceptions: Mapping[str, tuple[str, ...]]  # lemmas of each irregular form

    @classmethod
    def read(cls, folder: Path) -> "WordNet":
        """Read WordNet's database files."""
        for name in FILES:
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{folder / name}: no such file; expected WordNet's {' and '.join(FILES)}: "
                    "unpack WNdb-3.0.tar.gz (wordnet.princeton.edu) or NLTK's corpora/wordnet"
                )
        lines = (folder / FILES[0]).read_text(encoding="utf-8").splitlines()
        nouns = frozenset(line.partition(" ")[0] for line in lines if not line.startswith(" "))
        irregular = (
            line.split() for line in (folder / FILES[1]).read_text(encoding="utf-8").splitlines()
        )
        return cls(nouns, {fields[0]: tuple(fields[1:]) for fields in irregular if fields})

    def lemma(self, word: str) -> str:
        """Return the shortest noun of which ``word`` can be a form, or the word itself if there is
        none."""
        if word in self.exceptions:
            candidates = [word, *self.exceptions[word]]
        else:
            candidates = [
                word,
                *(word[: -len(end)] + stem for end, stem in SUFFIXES if word.endswith(end)),
            ]
        return min((noun for noun in candidates if noun in self.nouns), key=len, default=word)
