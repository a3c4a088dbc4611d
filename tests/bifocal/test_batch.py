"""Batches, and the model that they are made for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.batch import ImageCaptionPairs
from bifocal.embedding import embed
from bifocal.losses import HardestTripletLoss
from bifocal.models import TwoBranchModel, load_model, save_model

NewModel = Callable[[], TwoBranchModel]


def test_a_saved_model_is_the_same_model(
    pairs: ImageCaptionPairs, new_model: NewModel, configuration: dict[str, Any], tmp_path: Path
) -> None:
    model = new_model()
    save_model(tmp_path, configuration, model.state_dict())
    for found, expected in zip(embed(load_model(tmp_path), pairs), embed(model, pairs), strict=True):
        assert torch.equal(found, expected)
    with pytest.raises(FileNotFoundError, match="holds no model"):
        load_model(tmp_path / "elsewhere")


def test_scores_of_a_batch_are_cosines_of_its_embeddings(pairs: ImageCaptionPairs, new_model: NewModel) -> None:
    model = new_model().eval()
    images, captions = embed(model, pairs)
    rows = torch.tensor([4, 71, 5, 30])
    batch = pairs.batch(rows)
    assert batch.image_ids == ["image 2", "image 15", "image 35"]
    assert batch.matches.int().tolist() == [[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    with torch.inference_mode():
        scores = model(batch)
    torch.testing.assert_close(scores.cross, images[[2, 15, 35]] @ captions[rows].T)
    assert HardestTripletLoss()(scores, batch.matches).isfinite()


def test_pairs_refuse_images_without_captions(stores: Any) -> None:
    tables, features, text = stores
    lonely = type(tables)(tables.images, tables.captions.iloc[2:], tables.phrases, tables.image_root)
    with pytest.raises(ValueError, match="1 of 40 images have no caption"):
        ImageCaptionPairs(lonely, features, text)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_processes_share_a_batch_in_its_order(pairs: ImageCaptionPairs, ranks: int) -> None:
    rows = torch.tensor([4, 71, 5, 30, 8, 1])
    whole = pairs.batch(rows)
    parts = [pairs.batch(rows, rank, ranks) for rank in range(ranks)]
    assert torch.equal(torch.cat([part.regions.features for part in parts]), whole.regions.features)
    assert torch.equal(torch.cat([part.text.lengths for part in parts]), whole.text.lengths)
    for part in parts:
        assert part.image_ids == whole.image_ids
        assert torch.equal(part.matches, whole.matches)
    with pytest.raises(ValueError, match="a batch has 5 images for 6 processes: raise batch_size"):
        pairs.batch(rows, 0, 6)
