"""Batches of image triplets."""

import pytest
import torch
from scipy.sparse import csr_matrix

from bifocal.losses import SemanticTripletLoss
from bifocal.models import TwoBranchModel, build_model
from bifocal.models.batch import embed
from bifocal.training.batches import MinedTriplets, OrderedTriplets
from bifocal.training.semantic_pairs import SemanticPairs, relevant_images


def new_model(semantic: SemanticPairs) -> TwoBranchModel:
    torch.manual_seed(0)
    pairs = semantic.pairs
    model = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 8,
            "image_encoder": "LinearEncoder",
            "text_encoder": "BagOfWordsEncoder",
        },
        feature_dim=pairs.features.dim,
        text_dim=pairs.text.dim,
        text_format="sparse",
    )
    assert isinstance(model, TwoBranchModel)
    return model


def test_mined_triplets_have_relevant_and_irrelevant_images(semantic: SemanticPairs) -> None:
    relevant = relevant_images(semantic, 4)
    model = new_model(semantic)
    batches = MinedTriplets(
        batch_size=6, neighbors=4, queries_per_pool=10, positives_per_query=2, steps_per_epoch=5
    )
    sampler = batches.sampler(semantic, model, SemanticTripletLoss(margin=0.5), seed=1)
    epoch = sampler(0)
    assert len(epoch) == 5
    assert all(torch.equal(a, b) for a, b in zip(epoch, sampler(0), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(epoch, sampler(1), strict=True))
    for rows in epoch:
        for q, plus, minus in zip(*rows.view(3, 6).tolist(), strict=True):
            assert plus in relevant[q]
            assert minus not in relevant[q]
            assert minus != q
    batch = semantic.batch(epoch[0])
    assert batch.image_ids[:6] == [semantic.pairs.image_ids[row] for row in epoch[0][:6].tolist()]
    assert batch.matches.nonzero().tolist() == [
        pair for q in range(6) for pair in ([q, q + 6], [q, q + 12])
    ]
    assert batch.matches.sum() == 0


def test_mined_triplets_train_a_model_to_retrieve_relevant_images(semantic: SemanticPairs) -> None:
    model, relevant = new_model(semantic), relevant_images(semantic, 4)
    loss, optimizer = SemanticTripletLoss(margin=0.3), torch.optim.Adam(model.parameters(), lr=0.02)
    batches = MinedTriplets(
        batch_size=16, neighbors=4, queries_per_pool=20, positives_per_query=3, steps_per_epoch=8
    )
    sampler = batches.sampler(semantic, model, loss, seed=1)

    def agreement() -> float:
        images, _ = embed(model, semantic.pairs)
        nearest = (images @ images.T).fill_diagonal_(-2).topk(4).indices
        return float((nearest.unsqueeze(2) == relevant.unsqueeze(1)).any(dim=2).double().mean())

    before = agreement()
    for epoch in range(3):
        for rows in sampler(epoch):
            batch = semantic.batch(rows)
            model.train()
            optimizer.zero_grad()
            loss(model(batch), batch.matches).backward()
            optimizer.step()
    assert agreement() > before + 0.1


def test_mined_triplets_need_a_pool_with_a_loss(semantic: SemanticPairs) -> None:
    batches, loss = (
        MinedTriplets(neighbors=4, positives_per_query=2),
        SemanticTripletLoss(margin=-3.0),
    )
    sampler = batches.sampler(semantic, new_model(semantic), loss, seed=1)
    with pytest.raises(ValueError, match="epoch 1: no triplet of the pool has a loss"):
        sampler(0)


def test_mined_triplets_reject_more_positives_than_neighbors() -> None:
    with pytest.raises(
        ValueError, match="positives_per_query is 9, but only 4 neighbors are relevant"
    ):
        MinedTriplets(neighbors=4)
    assert not list(MinedTriplets.conflicts({"neighbors": 10}))


def test_ordered_triplets_are_in_the_order_of_their_texts(semantic: SemanticPairs) -> None:
    texts = semantic.vectors.toarray()
    epoch = OrderedTriplets(batch_size=20, steps_per_epoch=4).sampler(semantic, seed=1)(0)
    triplets = [
        triplet for rows in epoch for triplet in zip(*rows.view(3, 20).tolist(), strict=True)
    ]
    assert len(set(triplets)) > 60
    for query, relevant, irrelevant in triplets:
        assert texts[query] @ texts[relevant] > texts[query] @ texts[irrelevant]
        assert query not in (relevant, irrelevant)
    batch = semantic.batch(epoch[0])
    assert batch.matches[:, 20:40].nonzero().tolist() == [[row, row] for row in range(20)]


def test_ordered_triplets_need_captions_with_common_words(
    semantic: SemanticPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic, "vectors", csr_matrix(torch.eye(40).numpy()))
    with pytest.raises(ValueError, match="captions have no common words"):
        OrderedTriplets().sampler(semantic, seed=1)(0)
