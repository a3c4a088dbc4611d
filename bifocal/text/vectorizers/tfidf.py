"""Captions as bags of words weighted by tf-idf."""

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
from scipy.sparse import csr_matrix
from snowballstemmer import stemmer

from bifocal.datasets.published import Download, PublishedCorpus
from bifocal.text.expected import ExpectedText
from bifocal.text.format import EncodedCaptions, TextFormat
from bifocal.text.tokens import MAX_TOKENS, tokenize
from bifocal.text.vectorizers.base import ignored_arguments
from bifocal.text.word_vectors.wordnet import WordNet

TERMS, WEIGHTS = "terms.json", "idf.safetensors"
WORDNET = Download(
    "WNdb-3.0.tar.gz: index.noun, noun.exc", "Princeton", "https://wordnet.princeton.edu/download/current-version"
)


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
        form: "stem", by Snowball's English stemmer, or "lemma", by WordNet.
        fallback: if WordNet is missing: "error", or "stem" to stem instead.
        stop_words: remove scikit-learn's 318 English stop words.
        min_count: minimum number of documents that contain a term.
        max_terms: size of the dictionary: the terms that most documents contain; None for all (Wang, Li, Lazebnik, CVPR
            2016: 3,000 for Flickr30k and 5,600 for COCO).
        path: folder of WordNet's ``index.noun`` and ``noun.exc``, for lemmas.

    Example:
        >>> vectorizer = TFIDF()
        >>> vectorizer.fit(["A dog runs", "Dogs run on grass"], seed=0)
        {'terms': 3, 'lemmatized': 0.0}
        >>> list(vectorizer.terms)
        ['dog', 'grass', 'run']
    """

    documents: Literal["captions", "images"] = "captions"
    form: Literal["stem", "lemma"] = "stem"
    fallback: Literal["error", "stem"] = "error"
    stop_words: bool = True
    min_count: int = 1
    max_terms: int | None = None
    path: Path | str | None = None
    terms: dict[str, int] = field(init=False, repr=False)
    idf: NDArray[np.float32] = field(init=False, repr=False)
    wordnet: WordNet | None = field(init=False, repr=False, default=None)

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Yield contradictions between arguments."""
        max_terms = arguments.get("max_terms")
        if max_terms is not None and max_terms < 1:
            yield f"max_terms is {max_terms}: expected 1 or more, or null for all terms"
        if arguments.get("form", "stem") == "stem":
            options = {name: value for name, value in arguments.items() if value is not None}
            yield from ignored_arguments(options, ["path", "fallback"], "with form 'stem', which needs no WordNet")
        elif arguments.get("path") is not None:
            yield from ignored_arguments(arguments, ["fallback"], "with path")
        elif arguments.get("fallback", "error") == "error":
            yield "form 'lemma' needs path, the folder of WordNet's index.noun and noun.exc, or fallback 'stem'"

    @property
    def format(self) -> TextFormat:
        """Sparse vectors with one dimension per term."""
        return TextFormat("sparse", len(self.terms))

    def expect(self, corpus: PublishedCorpus) -> ExpectedText:
        """Return the sizes of the text of a published corpus; about half of the tokens are no stop words."""
        terms = min(filter(None, (corpus.vocabulary(self.min_count), self.max_terms)), default=0)
        return ExpectedText(
            TextFormat("sparse", terms),
            terms=0.5 if self.stop_words else 0.9,
            fitted_bytes=20 * terms,
            fit_bytes=300 * corpus.words,
            downloads=() if self.path is None else (WORDNET,),
        )

    def fit(self, captions: Sequence[str], seed: int, checkpoints: Path | None = None) -> dict[str, float]:
        """Learn the terms and their weights from documents; the seed has no effect.

        Raises:
            FileNotFoundError: lemmas need WordNet, and it is missing.
            ValueError: no term is frequent enough.
        """
        if self.form == "lemma":
            self.wordnet = self._read_wordnet()
        frequency = Counter(term for caption in captions for term in {*self._terms(self._limited(tokenize(caption)))})
        frequent = (term for term, count in frequency.items() if count >= self.min_count)
        # Of equally frequent terms, the first by spelling is kept.
        kept = sorted(sorted(frequent, key=lambda term: (-frequency[term], term))[: self.max_terms])
        if not kept:
            raise ValueError(
                f"no term occurs in {self.min_count} of {len(captions)} {self.documents}: decrease min_count"
            )
        self.terms = {term: index for index, term in enumerate(kept)}
        counts = np.array([frequency[term] for term in kept])
        self.idf = (np.log((1 + len(captions)) / (1 + counts)) + 1).astype(np.float32)
        return {"terms": len(kept), "lemmatized": float(self.wordnet is not None)}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        """Return the weights of the terms of each caption."""
        counts = {"tokens": 0, "unknown_tokens": 0, "empty_captions": 0, "truncated_captions": 0}
        ends, columns = [0], []
        for caption in captions:
            tokens = tokenize(caption)
            limited = self._limited(tokens)
            counts["truncated_captions"] += len(tokens) > len(limited)
            terms = self._terms(limited)
            known = [self.terms[term] for term in terms if term in self.terms]
            counts["tokens"] += len(terms)
            counts["unknown_tokens"] += len(terms) - len(known)
            counts["empty_captions"] += not known
            columns += known
            ends.append(len(columns))
        matrix = csr_matrix((np.ones(len(columns), np.float32), columns, ends), (len(captions), len(self.terms)))
        matrix.sum_duplicates()
        matrix.data *= self.idf[matrix.indices]
        if self.documents == "captions":
            norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
            matrix.data /= np.repeat(norms, np.diff(matrix.indptr))
        values = np.split(matrix.data.astype(np.float32), matrix.indptr[1:-1])
        return EncodedCaptions(values, np.split(matrix.indices.astype(np.int32), matrix.indptr[1:-1]), counts)

    def save(self, directory: Path) -> None:
        """Write the terms, their weights, and the nouns of WordNet, which new words need."""
        wordnet = self.wordnet
        nouns = None if wordnet is None else sorted(wordnet.nouns)
        exceptions = None if wordnet is None else dict(sorted(wordnet.exceptions.items()))
        content = {"terms": list(self.terms), "nouns": nouns, "exceptions": exceptions}
        (directory / TERMS).write_text(json.dumps(content, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
        save_file({"idf": self.idf}, directory / WEIGHTS)

    def load(self, directory: Path) -> None:
        """Read the files that :meth:`save` wrote."""
        content = json.loads((directory / TERMS).read_text(encoding="utf-8"))
        self.terms = {term: index for index, term in enumerate(content["terms"])}
        self.idf = load_file(directory / WEIGHTS)["idf"]
        if content["nouns"] is not None:
            irregular = {form: tuple(lemmas) for form, lemmas in content["exceptions"].items()}
            self.wordnet = WordNet(frozenset(content["nouns"]), irregular)

    def _limited(self, tokens: list[str]) -> list[str]:
        """Return the tokens of a caption that count; all of an image's captions are longer than a caption may be."""
        return tokens if self.documents == "images" else tokens[:MAX_TOKENS]

    def _terms(self, tokens: Sequence[str]) -> list[str]:
        kept = [token for token in tokens if not (self.stop_words and token in english_stop_words())]
        for token in kept:
            if token not in self._forms:
                self._forms[token] = self.wordnet.lemma(token) if self.wordnet else self._stemmer.stemWord(token)
        return [self._forms[token] for token in kept]

    @cached_property
    def _forms(self) -> dict[str, str]:
        # Stemming is slow: compute the form of each word once.
        return {}

    @cached_property
    def _stemmer(self) -> stemmer:
        return stemmer("english")

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
def english_stop_words() -> frozenset[str]:
    """Return the English stop words of scikit-learn."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS  # imported here: scikit-learn takes seconds

    words: frozenset[str] = ENGLISH_STOP_WORDS
    return words
