"""CachedVectorizer against FittedVectorizer."""

import pytest
import torch

from bifocal.text.elmo.format import ElmoOptions
from bifocal.text.elmo.network import Elmo
from bifocal.text.vectorizers import TFIDF, ElmoLayers
from bifocal.text.vectorizers.base import FittedVectorizer, Vectorizer
from bifocal.text.vectorizers.cached import CachedVectorizer

SENTENCES = ["a red star", "a blue ring and a star", "a red star"]


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
def test_cached_sentences_are_encoded_once(vectorizer: Vectorizer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = FittedVectorizer(vectorizer).vectorize(SENTENCES)
    cached = CachedVectorizer(vectorizer)
    first = cached.vectorize(SENTENCES)
    monkeypatch.setattr(vectorizer, "transform", None)
    for batch in (first, cached.vectorize(SENTENCES)):
        assert batch.values.equal(expected.values)
        assert batch.lengths.equal(expected.lengths)
    assert cached.vectorize([]).values.shape[0] == 0
