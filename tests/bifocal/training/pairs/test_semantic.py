"""Images with joined captions."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from snowballstemmer import stemmer

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.metrics.ranking.semantic_relevance import image_vectors
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore, tokenize
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import training_documents, write_text
from bifocal.training.pairs import SemanticPairs


def test_semantic_pairs_sum_and_normalize_the_captions_of_an_image(semantic: SemanticPairs) -> None:
    text = semantic.texts(torch.arange(40)).values.double().numpy()
    captions = semantic.pairs.caption_text(torch.arange(80)).values.double().numpy()
    sums = captions[0::2] + captions[1::2]
    np.testing.assert_allclose(text, sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=1e-6)


def test_images_as_documents_give_the_tf_idf_of_all_words_of_an_image(
    stores: tuple[Dataset, FeatureStore, TextStore], tmp_path: Path
) -> None:
    """The proxy of section 4 against scikit-learn on the joined captions."""
    tables, features, _ = stores
    captions, image_ids = tables.captions["text"].tolist(), tables.captions["image_id"].tolist()
    vectorizer = TFIDF(documents="images", stop_words=False)
    documents = training_documents(vectorizer, image_ids, captions)
    assert len(documents) == 40
    vectorizer.fit(documents, seed=0)
    write_text(tmp_path, vectorizer, tables.captions["caption_id"].tolist(), captions)
    stem = stemmer("english").stemWord
    peer = TfidfVectorizer(analyzer=lambda text: [stem(word) for word in tokenize(text)])
    expected = peer.fit_transform(documents).toarray()
    pairs = SemanticPairs(ImageCaptionPairs(tables, features, TextStore(tmp_path)))
    np.testing.assert_allclose(pairs.vectors.toarray(), expected, atol=1e-6)
    np.testing.assert_allclose(image_vectors(vectorizer, tables).toarray(), expected, atol=1e-6)


def test_semantic_pairs_reject_tokens(pairs: ImageCaptionPairs) -> None:
    with pytest.raises(ValueError, match="not tokens: vectorize with TFIDF"):
        SemanticPairs(pairs)


def test_semantic_pairs_reject_several_processes(semantic: SemanticPairs) -> None:
    with pytest.raises(ValueError, match="one process"):
        semantic.batch(torch.arange(3), 0, 2)
