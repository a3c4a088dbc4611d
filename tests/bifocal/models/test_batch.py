"""Batches of image-caption pairs, and scores of a model on them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.losses import HardestTripletLoss, InfoNCELoss
from bifocal.models import build_model, load_model, save_model
from bifocal.models.base import Model
from bifocal.models.batch import ImageCaptionPairs, embed
from bifocal.scores import Scores


@pytest.fixture(scope="module")
def model(pairs: ImageCaptionPairs) -> Model:
    """A small model for ``pairs``, in evaluation mode."""
    torch.manual_seed(5)
    return build_model(
        {
            "name": "TwoBranchModel",
            "dim": 16,
            "image_encoder": "SMILEEncoder",
            "text_encoder": "GRUEncoder",
        },
        feature_dim=pairs.features.dim,
        text_dim=pairs.text.dim,
        text_format="tokens",
        vocabulary_size=len(pairs.text.vocabulary),
    ).eval()


def test_loaded_model_gives_same_embeddings(
    pairs: ImageCaptionPairs, model: Model, tmp_path: Path
) -> None:
    save_model(tmp_path, model)
    for actual, expected in zip(
        embed(load_model(tmp_path), pairs), embed(model, pairs), strict=True
    ):
        assert torch.equal(actual, expected)
    with pytest.raises(FileNotFoundError, match="holds no model"):
        load_model(tmp_path / "elsewhere")


def test_scores_of_half_precision_keep_the_distance_of_near_vectors(model: Model) -> None:
    vectors = torch.nn.functional.normalize(
        torch.randn(2, 64, generator=torch.Generator().manual_seed(1)), dim=1
    )
    near = vectors[0] + 0.04 * vectors[1]
    both = torch.nn.functional.normalize(torch.stack([vectors[0], near]), dim=1)
    distance = (both[0] - both[1]).norm()
    with torch.autocast("cpu", torch.bfloat16):
        scores = model.score(both.bfloat16(), both.bfloat16())
    assert scores.visual is not None
    assert scores.visual.dtype == torch.float32
    assert (2 - 2 * scores.visual[0, 1]).sqrt().item() == pytest.approx(distance.item(), rel=0.15)
    assert scores.visual.diagonal().tolist() == pytest.approx([1, 1], abs=1e-6)


def test_scores_of_batch_equal_cosines_of_embeddings(
    pairs: ImageCaptionPairs, model: Model
) -> None:
    images, captions = embed(model, pairs)
    rows = torch.tensor([4, 71, 5, 30])
    batch = pairs.batch(rows)
    assert batch.image_ids == ["image 2", "image 15", "image 35"]
    assert batch.matches.int().tolist() == [[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    with torch.inference_mode():
        scores = model(batch)
    torch.testing.assert_close(scores.cross, images[[2, 15, 35]] @ captions[rows].T)
    assert HardestTripletLoss()(scores, batch.matches).isfinite()


def test_sentences_that_do_not_describe_an_image_are_columns_without_a_match(stores: Any) -> None:
    tables, features, text = stores
    wrong = tables.captions.iloc[[7, 9]].assign(image_id=["image 2", "image 30"])
    pairs = ImageCaptionPairs(
        replace(tables, corrections=wrong.assign(right=False)), features, text
    )
    rows = torch.tensor([4, 71, 5, 30])
    batch, plain = pairs.batch(rows), ImageCaptionPairs(*stores).batch(rows)
    assert torch.equal(batch.matches[:, :4], plain.matches)
    assert batch.matches[:, 4:].tolist() == [[False]] * 3
    assert torch.equal(batch.text.values[4], pairs.caption_text(torch.tensor([7])).values[0])
    shares = [pairs.batch(rows, rank, 2) for rank in range(2)]
    assert sum(len(share.text.lengths) for share in shares) == batch.matches.shape[1] == 5
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(3, 5, generator=generator, requires_grad=True)
    InfoNCELoss()(Scores(scores), batch.matches).backward()
    assert scores.grad is not None
    assert (scores.grad[:, 4] > 0).all()  # the training lowers them


def test_pairs_reject_images_without_captions(stores: Any) -> None:
    tables, features, text = stores
    incomplete = type(tables)(
        tables.images, tables.captions.iloc[2:], tables.phrases, tables.image_root
    )
    with pytest.raises(ValueError, match="1 of 40 images have no caption"):
        ImageCaptionPairs(incomplete, features, text)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_batch_is_split_over_processes_in_order(pairs: ImageCaptionPairs, world_size: int) -> None:
    rows = torch.tensor([4, 71, 5, 30, 8, 1])
    whole = pairs.batch(rows)
    parts = [pairs.batch(rows, rank, world_size) for rank in range(world_size)]
    assert torch.equal(torch.cat([part.regions.features for part in parts]), whole.regions.features)
    assert torch.equal(torch.cat([part.text.lengths for part in parts]), whole.text.lengths)
    for part in parts:
        assert part.image_ids == whole.image_ids
        assert torch.equal(part.matches, whole.matches)
    with pytest.raises(ValueError, match="a batch has 5 images for 6 processes: raise batch_size"):
        pairs.batch(rows, 0, 6)
