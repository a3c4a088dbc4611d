"""Batches of triplets, ordered by text similarity."""

import pytest
import torch
from scipy.sparse import csr_matrix

from bifocal.training.batches import OrderedTriplets
from bifocal.training.pairs import SemanticPairs


def test_ordered_triplets_are_in_the_order_of_their_texts(semantic: SemanticPairs) -> None:
    texts = semantic.vectors.toarray()
    epoch = OrderedTriplets(batch_size=20, steps_per_epoch=4).sampler(semantic, seed=1)(0)
    triplets = [triplet for rows in epoch for triplet in zip(*rows.view(3, 20).tolist(), strict=True)]
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
