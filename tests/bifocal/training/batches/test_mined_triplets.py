"""Mining of triplets against loops over sections 5.1 and 6.1, and training on what it mines."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from bifocal.batch import ImageCaptionPairs
from bifocal.datasets import Dataset
from bifocal.embedding import embed
from bifocal.features import FeatureStore
from bifocal.losses import SemanticTripletLoss
from bifocal.models import TwoBranchModel, build_model
from bifocal.text import TextStore
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import write_text
from bifocal.training.batches.mined_triplets import MiningSampler, SemanticPairs, mine_triplets, relevant_images


@pytest.fixture(scope="module")
def semantic(
    stores: tuple[Dataset, FeatureStore, TextStore], tmp_path_factory: pytest.TempPathFactory
) -> SemanticPairs:
    tables, features, _ = stores
    folder: Path = tmp_path_factory.mktemp("tfidf")
    vectorizer, captions = TFIDF(), tables.captions["text"].tolist()
    vectorizer.fit(captions, seed=0)
    write_text(folder, vectorizer, tables.captions["caption_id"].tolist(), captions)
    return SemanticPairs(ImageCaptionPairs(tables, features, TextStore(folder)))


def new_model(semantic: SemanticPairs) -> TwoBranchModel:
    torch.manual_seed(0)
    pairs = semantic.pairs
    model = build_model(
        {"name": "TwoBranchModel", "dim": 8, "image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"},
        feature_dim=pairs.features.dim,
        text_dim=pairs.text.dim, text_format="sparse",
    )  # fmt: skip
    assert isinstance(model, TwoBranchModel)
    return model


def test_relevant_images_are_the_nearest_texts(semantic: SemanticPairs) -> None:
    text = semantic.texts(torch.arange(40)).values.double().numpy()
    captions = semantic.pairs.caption_text(torch.arange(80)).values.double().numpy()
    own = captions[0::2] + captions[1::2]
    np.testing.assert_allclose(text, own / np.linalg.norm(own, axis=1, keepdims=True), atol=1e-6)
    found = relevant_images(semantic, 3)
    for image in range(40):
        scores = [float(text[image] @ text[other]) if other != image else -1.0 for other in range(40)]
        assert [scores[row] for row in found[image].tolist()] == pytest.approx(sorted(scores, reverse=True)[:3])


def test_mined_triplets_are_those_of_the_greatest_loss() -> None:
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(12, 4, dtype=torch.float64), dim=1)
    relevance = torch.rand(3, 12) < 0.3
    relevance[:, :3].fill_diagonal_(False)
    vectors, expected = embeddings.numpy(), set()
    for q in range(3):
        for plus in range(12):
            if not relevance[q, plus]:
                continue
            costs = {
                minus: 0.4 - vectors[q] @ vectors[plus] + vectors[q] @ vectors[minus]
                for minus in range(12)
                if minus != q and not relevance[q, minus]
            }
            hardest = sorted(costs, key=lambda minus: -costs[minus])[:2]
            expected |= {(q, plus, minus) for minus in hardest if costs[minus] > 0}
    found = mine_triplets(embeddings, relevance, 3, margin=0.4, hardest=2)
    assert expected
    assert {tuple(row) for row in found.tolist()} == expected
    assert len(found) == len(expected)


def test_batches_are_mined_triplets(semantic: SemanticPairs) -> None:
    relevant = relevant_images(semantic, 4)
    model = new_model(semantic)
    sampler = MiningSampler(
        model, semantic, relevant, batch_size=6, seed=1, queries=10, relevant_each=2, updates=5, margin=0.5
    )
    batches = sampler(0)
    assert len(batches) == 5
    assert all(torch.equal(a, b) for a, b in zip(batches, sampler(0), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(batches, sampler(1), strict=True))
    for rows in batches:
        for q, plus, minus in zip(*rows.view(3, 6).tolist(), strict=True):
            assert plus in relevant[q]
            assert minus not in relevant[q]
            assert minus != q
    batch = semantic.batch(batches[0])
    assert batch.image_ids[:6] == [semantic.pairs.image_ids[row] for row in batches[0][:6].tolist()]
    assert batch.matches.nonzero().tolist() == [pair for q in range(6) for pair in ([q, q + 6], [q, q + 12])]
    assert batch.matches.sum() == 0


def test_training_on_mined_triplets_brings_relevant_images_together(semantic: SemanticPairs) -> None:
    model, relevant = new_model(semantic), relevant_images(semantic, 4)
    loss, descent = SemanticTripletLoss(margin=0.3), torch.optim.Adam(model.parameters(), lr=0.02)
    sampler = MiningSampler(
        model, semantic, relevant, batch_size=16, seed=1, queries=20, relevant_each=3, updates=8, margin=0.3
    )

    def agreement() -> float:
        images, _ = embed(model, semantic.pairs)
        nearest = (images @ images.T).fill_diagonal_(-2).topk(4).indices
        return float((nearest.unsqueeze(2) == relevant.unsqueeze(1)).any(dim=2).double().mean())

    before = agreement()
    for epoch in range(3):
        for rows in sampler(epoch):
            batch = semantic.batch(rows)
            model.train()
            descent.zero_grad()
            loss(model(batch), batch.matches).backward()
            descent.step()
    assert agreement() > before + 0.1


def test_texts_must_be_one_vector_each(pairs: ImageCaptionPairs) -> None:
    with pytest.raises(ValueError, match="not tokens: use TFIDF"):
        SemanticPairs(pairs)
