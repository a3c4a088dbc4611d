"""Words that a model does not know."""

from pathlib import Path
from typing import Any

import pytest

from bifocal.onnx.text.sentences import SentenceReader
from bifocal.text.vectorizers import TFIDF, Concatenated, FisherVectors, MeanWordVectors
from bifocal.text.vectorizers.base import save_vectorizer

CAPTIONS = [
    "a dog runs on the grass",
    "two red birds sit on grass",
    "the dog sits near two birds",
] * 4
VECTORIZERS = {
    "bags of words": lambda: TFIDF(),
    "means": lambda: MeanWordVectors(dim=5, epochs=1),
    "Fisher vectors": lambda: FisherVectors(dim=4, centers=2, components=5, epochs=1, iterations=2),
    "both": lambda: Concatenated([TFIDF(), MeanWordVectors(dim=5, epochs=1)]),
}


@pytest.mark.parametrize("name", VECTORIZERS)
def test_words_of_every_vocabulary_are_known(name: str, tmp_path: Path) -> None:
    vectorizer: Any = VECTORIZERS[name]()
    vectorizer.fit(CAPTIONS, seed=0)
    (tmp_path / "text").mkdir()
    save_vectorizer(tmp_path / "text", vectorizer)
    reader = SentenceReader(tmp_path)
    assert reader.unknown("a zebra near a dog") == ["zebra"]
    with pytest.raises(ValueError, match="the model knows none of the words of 'zebra'"):
        reader.unknown("zebra")
