"""Saving, loading and caching vectorizers, and contradictions between their arguments."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal import registry
from bifocal.text.elmo import Elmo, ElmoOptions
from bifocal.text.vectorizers import TFIDF, ElmoLayers
from bifocal.text.vectorizers.base import (
    PACKAGE,
    CachedVectorizer,
    FittedVectorizer,
    Vectorizer,
    load_vectorizer,
)

SENTENCES = ["a red star", "a blue ring and a star", "a red star"]


def test_folder_without_vectorizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no vectorizer: config\.json is missing"):
        load_vectorizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "arguments", "messages"),
    [
        ("PretrainedWordVectors", {}, ["path is missing"]),
        (
            "PretrainedWordVectors",
            {"path": "a", "buckets": 9},
            ["buckets 9 has no effect unless unknown is 'bucket'"],
        ),
        ("PretrainedWordVectors", {"path": "a", "buckets": 9, "unknown": "bucket"}, []),
        (
            "MeanWordVectors",
            {"path": "a", "dim": 8, "epochs": 2},
            ["dim 8 has no effect", "epochs 2 has no effect"],
        ),
        ("MeanWordVectors", {"path": None, "dim": 8}, []),
        (
            "FisherVectors",
            {"path": "a", "subsample": 0.0},
            ["subsample 0.0 has no effect with path"],
        ),
        (
            "ElmoLayers",
            {"path": "a", "lstm_dim": 8, "batch_size": 4},
            ["lstm_dim 8 has no effect with path"],
        ),
        ("TFIDF", {"path": "a"}, ["path 'a' has no effect with form 'stem'"]),
        (
            "TFIDF",
            {"form": "stem", "fallback": "stem"},
            ["fallback 'stem' has no effect with form 'stem'"],
        ),
        ("TFIDF", {"form": "lemma"}, ["form 'lemma' needs path"]),
        (
            "TFIDF",
            {"form": "lemma", "path": "a", "fallback": "stem"},
            ["fallback 'stem' has no effect with path"],
        ),
        ("TFIDF", {"form": "lemma", "fallback": "stem"}, []),
        (
            "TFIDF",
            {"language": "germn"},
            ["language 'germn': did you mean 'german'? Available: arabic, armenian"],
        ),
        (
            "TFIDF",
            {"language": "yiddish"},
            ["no list of stop words in yiddish: set stop_words to false"],
        ),
        ("TFIDF", {"language": "yiddish", "stop_words": False}, []),
        (
            "TFIDF",
            {"language": "german", "form": "lemma", "path": "a"},
            ["WordNet has only English lemmas"],
        ),
        (
            "Concatenated",
            {"vectorizers": [{"name": "TFIDF"}]},
            ["vectorizers has 1 entries: give two or more"],
        ),
        (
            "Concatenated",
            {"vectorizers": ["TFIDF", {"name": "TFIDF", "documents": "images"}]},
            ["documents 'images'"],
        ),
        (
            "SentenceVectors",
            {},
            ["path is missing: set it to the folder of a pretrained transformer"],
        ),
        ("SentenceVectors", {"path": "a", "model": "b"}, ["model 'b' and path 'a' are both given"]),
        ("SentenceVectors", {"model": "b"}, []),
    ],
)
def test_conflicts_name_argument_and_value(
    name: str, arguments: dict[str, Any], messages: list[str]
) -> None:
    conflicts = list(registry.get(PACKAGE, name).conflicts(arguments))
    assert len(conflicts) == len(messages)
    for conflict, message in zip(conflicts, messages, strict=True):
        assert message in conflict


def sparse() -> TFIDF:
    vectorizer = TFIDF(min_count=1)
    vectorizer.fit(SENTENCES, seed=0)
    return vectorizer


def contextual() -> ElmoLayers:
    torch.manual_seed(0)
    vectorizer = ElmoLayers()
    vectorizer.elmo = Elmo(ElmoOptions(filters=((1, 4),), lstm_dim=4, projection_dim=4)).eval()
    return vectorizer


@pytest.mark.parametrize("vectorizer", [sparse(), contextual()], ids=["sparse", "contextual"])
def test_cached_sentences_are_encoded_once(
    vectorizer: Vectorizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = FittedVectorizer(vectorizer).vectorize(SENTENCES)
    cached = CachedVectorizer(vectorizer)
    first = cached.vectorize(SENTENCES)
    monkeypatch.setattr(vectorizer, "transform", None)
    for batch in (first, cached.vectorize(SENTENCES)):
        assert batch.values.equal(expected.values)
        assert batch.lengths.equal(expected.lengths)
    assert cached.vectorize([]).values.shape[0] == 0
