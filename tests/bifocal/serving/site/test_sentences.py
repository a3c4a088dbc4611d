"""Vectorizers that a static copy does not have are refused by their name."""

import json
from pathlib import Path
from typing import Any

import pytest

from bifocal.onnx.text.tfidf import TFIDF, WordNet
from bifocal.serving.site.sentences import NotInBrowsers, describe_readers
from bifocal.text.vectorizers.base import save_vectorizer


def write_vectorizer(onnx: Path, name: str) -> Path:
    (onnx / "text").mkdir()
    (onnx / "text" / "config.json").write_text(json.dumps({"name": name, "arguments": {}}))
    return onnx / "text"


@pytest.mark.parametrize(
    "name", ["FisherVectors", "MeanWordVectors", "StaticVectors", "OpenClipText", "MyVectorizer"]
)
def test_other_vectorizers(name: str, tmp_path: Path) -> None:
    write_vectorizer(tmp_path, name)
    with pytest.raises(NotInBrowsers, match=f"the vectorizer {name} has no implementation"):
        describe_readers(tmp_path)


def test_elmo(tmp_path: Path) -> None:
    with pytest.raises(NotInBrowsers, match="the vectorizer ElmoLayers"):
        describe_readers(tmp_path)


@pytest.mark.parametrize(
    ("wordnet", "language", "message"),
    [
        (WordNet(frozenset(), {}), "english", "lemmas of WordNet"),
        (None, "german", "stems of the language german"),
    ],
)
def test_terms_of_other_kinds(
    wordnet: WordNet | None, language: str, message: str, tmp_path: Path
) -> None:
    vectorizer = TFIDF(language=language)
    vectorizer.fit(["hund"], seed=0)
    vectorizer.wordnet = wordnet
    save_vectorizer(write_vectorizer(tmp_path, "TFIDF"), vectorizer)
    with pytest.raises(NotInBrowsers, match=f"the vectorizer TFIDF uses {message}"):
        describe_readers(tmp_path)


def test_an_older_stemmer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectorizer = TFIDF()
    vectorizer.fit(["dog"], seed=0)
    save_vectorizer(write_vectorizer(tmp_path, "TFIDF"), vectorizer)
    assert describe_readers(tmp_path)[0]["terms"] == ["dog"]
    monkeypatch.setattr(TFIDF, "forms", lambda vectorizer, tokens: ["geologist" for _ in tokens])
    with pytest.raises(NotInBrowsers, match="snowballstemmer>=3"):
        describe_readers(tmp_path)


def test_another_tokenizer(tmp_path: Path) -> None:
    folder = write_vectorizer(tmp_path, "Subwords")
    content: dict[str, Any] = dict.fromkeys(["normalizer", "pre_tokenizer", "post_processor"]) | {
        "model": {"type": "BPE"}
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(NotInBrowsers, match="other parts than BERT's: None, None, None, BPE"):
        describe_readers(tmp_path)
