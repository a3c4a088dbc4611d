"""Images with one text each, and triplets of images."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from snowballstemmer import stemmer
from torch.nn.functional import normalize

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.losses import SemanticTripletLoss
from bifocal.metrics.ranking.semantic_relevance import image_vectors
from bifocal.models.batch import ImageCaptionPairs
from bifocal.text import TextStore, tokenize
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import training_documents, write_text
from bifocal.training.semantic_pairs import SemanticPairs, mine_triplets, relevant_images


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


def test_relevant_images_are_the_nearest_texts(semantic: SemanticPairs) -> None:
    text = semantic.texts(torch.arange(40)).values.double().numpy()
    nearest = relevant_images(semantic, 3)
    for image in range(40):
        scores = [
            float(text[image] @ text[other]) if other != image else -1.0 for other in range(40)
        ]
        assert [scores[row] for row in nearest[image].tolist()] == pytest.approx(
            sorted(scores, reverse=True)[:3]
        )


@pytest.mark.parametrize(
    "weights", [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1.0, 0.5, 2.0)], ids=["V", "WSABIE", "V+T"]
)
def test_mine_triplets_returns_the_triplets_of_the_largest_loss(
    weights: tuple[float, float, float],
) -> None:
    torch.manual_seed(0)
    images, texts = normalize(torch.randn(2, 12, 4, dtype=torch.float64), dim=2)
    relevance = torch.rand(3, 12) < 0.3
    relevance[:, :3].fill_diagonal_(False)
    phi, theta, expected = images.numpy(), texts.numpy(), set()

    def loss(q: int, plus: int, minus: int) -> float:
        visual = max(0, 0.4 - phi[q] @ phi[plus] + phi[q] @ phi[minus])
        image_to_text = max(0, 0.4 - phi[q] @ theta[plus] + phi[q] @ theta[minus])
        text_to_image = max(0, 0.4 - theta[q] @ phi[plus] + theta[q] @ phi[minus])
        return float(weights[0] * visual + weights[1] * image_to_text + weights[2] * text_to_image)

    for q in range(3):
        irrelevant = [minus for minus in range(12) if minus != q and not relevance[q, minus]]
        for plus in relevance[q].nonzero().flatten().tolist():
            hardest = sorted(irrelevant, key=lambda minus: -loss(q, plus, minus))[:2]
            expected |= {(q, plus, minus) for minus in hardest if loss(q, plus, minus) > 0}
    parts = SemanticTripletLoss(0.4, *weights).weighted(
        images[:3] @ images.T, images[:3] @ texts.T, texts[:3] @ images.T
    )
    assert len(parts) == sum(weight > 0 for weight in weights)
    triplets = mine_triplets(parts, relevance, margin=0.4, triplets_per_pair=2)
    assert expected
    assert {tuple(row) for row in triplets.tolist()} == expected
    assert len(triplets) == len(expected)
