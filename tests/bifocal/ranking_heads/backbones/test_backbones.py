"""Backbones of ranking models: views of an image, and the start from an embedding."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.models import build_model, save_model
from bifocal.ranking_heads import MLPHead
from bifocal.ranking_heads.backbones import CellBackbone, EncoderBackbone
from bifocal.ranking_heads.model import RankingModel, build_ranking_model

SIZE = 32
SMILE: dict[str, Any] = {"name": "SMILEEncoder", "dim": 4}


class RecordingBackbone(CellBackbone):
    """Keeps the views of the images."""

    views: list[Tensor]

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        self.views.append(pixels)
        return pixels.flatten(2).mT


def test_cell_backbone_crops_and_mirrors_in_training_alone() -> None:
    narrow = {"channels": [4, 4, 4, 8], "stem_width": 4}
    backbone = RecordingBackbone(
        3, "resnet10t", SIZE, min_crop_area=0.25, flip=True, model_arguments=narrow
    )
    backbone.views = []
    ramp = torch.arange(SIZE).float().expand(8, 3, SIZE, SIZE)  # brighter from left to right
    mask = torch.ones(8, SIZE, SIZE, dtype=torch.bool)
    torch.manual_seed(0)
    backbone.train()(ramp, mask)
    backbone.eval()(ramp, mask)
    crops, whole = backbone.views
    assert torch.equal(whole, ramp)
    mirrored = (crops[:, 0, 0, -1] < crops[:, 0, 0, 0]).float().mean().item()
    assert 0 < mirrored < 1
    widths = (crops[:, 0, 0].amax(dim=1) - crops[:, 0, 0].amin(dim=1)) / (SIZE - 1)
    # Area 1/4 and aspect 3/4 give the narrowest crop: a side of (1/4 * 3/4) ** 0.5 = 0.43 of the
    # image.
    assert ((widths > 0.35) & (widths <= 1)).all()
    assert len(widths.unique()) > 4


def test_encoder_backbone_starts_from_an_embedding_of_the_same_features(
    tmp_path: Path, collection: tuple[Dataset, FeatureStore]
) -> None:
    _, features = collection
    embedding = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 4,
            "image_encoder": "SMILEEncoder",
            "text_encoder": "LinearEncoder",
        },
        feature_dim=features.dim,
        text_dim=5,
        text_format="vectors",
        inputs={"backbone": "resnet10t"},
    )
    save_model(tmp_path, embedding)
    model = build_ranking_model(
        "MLPHead", {"name": "EncoderBackbone", "encoder": SMILE}, input_dim=features.dim, labels=1
    )
    assert isinstance(model.backbone, EncoderBackbone)
    assert not model.reads_pixels
    with pytest.raises(
        ValueError, match="features have backbone None, but the model was trained on features with"
    ):
        model.backbone.load_embedding(tmp_path, features)
    embedding.config["inputs"] = {}
    save_model(tmp_path, embedding)
    model.backbone.load_embedding(tmp_path, features)
    regions = features.gather([0, 1])
    expected = embedding.eval().embed_images(regions)
    found, mask = model.eval().backbone(regions.features.float(), regions.mask)
    torch.testing.assert_close(found.squeeze(1), expected)
    assert mask.all()
    other = build_ranking_model(
        "MLPHead",
        {"name": "EncoderBackbone", "encoder": SMILE | {"dim": 3}},
        input_dim=features.dim,
        labels=1,
    )
    assert isinstance(other.backbone, EncoderBackbone)
    with pytest.raises(ValueError, match="does not fit SMILEEncoder"):
        other.backbone.load_embedding(tmp_path, features)


def test_a_head_alone_has_no_pixels_to_score() -> None:
    with pytest.raises(TypeError, match="reads stored features"):
        RankingModel(MLPHead(4, 1)).score_pixels(torch.zeros(1, 3, 8, 8))
