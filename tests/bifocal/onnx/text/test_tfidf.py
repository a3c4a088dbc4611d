"""TFIDF against scikit-learn, and lemmas against WordNet's rules."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, TfidfVectorizer
from snowballstemmer import stemmer

from bifocal.text import TextStore, tokenize
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import load_vectorizer, write_text

TRAINING = [
    "A brown dog runs over the green grass, running and running.",
    "Two dogs run over grass; one dog is brown.",
    "The man on the bicycle wears a red helmet.",
    "The",
    "",
]
NEW = ["A running dog bites a man", "zebras"]


def dense(vectorizer: TFIDF, captions: list[str], directory: Path) -> np.ndarray:
    write_text(directory, vectorizer, list(range(len(captions))), captions)
    return TextStore(directory).gather(range(len(captions))).values.numpy()


@pytest.mark.parametrize("stop_words", [True, False])
@pytest.mark.parametrize("min_count", [1, 2])
def test_tfidf_equals_scikit_learn(tmp_path: Path, stop_words: bool, min_count: int) -> None:
    stem = stemmer("english").stemWord
    excluded = ENGLISH_STOP_WORDS if stop_words else ()
    peer = TfidfVectorizer(
        analyzer=lambda text: [stem(word) for word in tokenize(text) if word not in excluded],
        min_df=min_count,
    )
    expected = peer.fit(TRAINING).transform(TRAINING + NEW).toarray()
    vectorizer = TFIDF(stop_words=stop_words, min_count=min_count)
    vectorizer.fit(TRAINING, seed=0)
    assert list(vectorizer.terms) == peer.get_feature_names_out().tolist()
    np.testing.assert_allclose(dense(vectorizer, TRAINING + NEW, tmp_path), expected, atol=1e-6)


@pytest.mark.parametrize("max_terms", [1, 3, 5, 99])
def test_dictionary_has_the_terms_of_most_captions(max_terms: int) -> None:
    vectorizer = TFIDF(max_terms=max_terms)
    vectorizer.fit(TRAINING, seed=0)
    stem = stemmer("english").stemWord
    captions = [
        {stem(word) for word in tokenize(text) if word not in ENGLISH_STOP_WORDS}
        for text in TRAINING
    ]
    frequency = {
        term: sum(term in caption for caption in captions) for term in set().union(*captions)
    }
    ranked = sorted(frequency, key=lambda term: (-frequency[term], term))
    assert list(vectorizer.terms) == sorted(ranked[:max_terms])
    assert "max_terms is 0" in " ".join(TFIDF.conflicts({"max_terms": 0}))


def write_wordnet(folder: Path) -> Path:
    folder.mkdir()
    nouns = "".join(
        f"{noun} n 1 1 @ 1 0 00000001  \n"
        for noun in ("dog", "man", "church", "leaf", "glass", "city", "gas")
    )
    (folder / "index.noun").write_text("  1 This software and database is ...\n" + nouns)
    (folder / "noun.exc").write_text("men man\nleaves leaf\nwolves wolf\n")
    return folder


def test_lemmas_are_those_of_wordnet(tmp_path: Path) -> None:
    vectorizer = TFIDF(form="lemma", path=write_wordnet(tmp_path / "wordnet"), stop_words=False)
    metrics = vectorizer.fit(["dogs men churches leaves glasses cities gas runs"], seed=0)
    assert metrics["lemmatized"] == 1
    assert list(vectorizer.terms) == [
        "church",
        "city",
        "dog",
        "gas",
        "glass",
        "leaf",
        "man",
        "runs",
    ]
    (tmp_path / "text").mkdir()
    stored = dense(vectorizer, ["a dog and two dogs", "man"], tmp_path / "text")
    loaded = load_vectorizer(tmp_path / "text").vectorize(["a dog and two dogs", "man"])
    np.testing.assert_array_equal(stored, loaded.values.numpy())


def test_missing_wordnet_is_named_or_replaced_by_stems(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"index\.noun and noun\.exc"):
        TFIDF(form="lemma").fit(TRAINING, seed=0)
    with pytest.raises(FileNotFoundError, match=r"index\.noun: no such file"):
        TFIDF(form="lemma", path=tmp_path).fit(TRAINING, seed=0)
    vectorizer = TFIDF(form="lemma", fallback="stem")
    assert vectorizer.fit(TRAINING, seed=0)["lemmatized"] == 0
    stems = TFIDF()
    stems.fit(TRAINING, seed=0)
    assert vectorizer.terms == stems.terms


def test_captions_without_frequent_terms_are_rejected() -> None:
    with pytest.raises(ValueError, match="no term occurs in 2 of 1 captions"):
        TFIDF(min_count=2).fit(["a dog"], seed=0)


def test_other_languages_have_their_stems_and_stop_words() -> None:
    captions = ["Der Hund läuft über die Wiesen", "Die Hunde und eine Wiese"]
    vectorizer = TFIDF(language="german")
    vectorizer.fit(captions, seed=0)
    assert list(vectorizer.terms) == ["hund", "lauft", "wies"]
    everything = TFIDF(language="german", stop_words=False)
    everything.fit(captions, seed=0)
    assert {"und", "die"} < set(everything.terms)
    with pytest.raises(KeyError, match="Stemming algorithm 'klingon' not found"):
        TFIDF(language="klingon").fit(captions, seed=0)
