"""Pixels survive the store unchanged, and an encoder trains on them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bifocal.features import FeatureStore, FeatureWriter, RegionBatch
from bifocal.features.extractors import Pixels
from bifocal.models import build_model
from bifocal.models.batch import Batch
from bifocal.text import TextBatch

SMALL = {"channels": [8, 16, 24, 32], "stem_width": 8}


def write_store(
    folder: Path, images: list[Image.Image], resize: str
) -> tuple[FeatureStore, list[torch.Tensor]]:
    extractor = Pixels(48, resize, "resnet10t", SMALL)
    pixels = [extractor.preprocess(image) for image in images]
    with FeatureWriter(
        folder,
        regions=extractor.regions,
        dim=extractor.dim,
        metadata=extractor.describe(),
        images_per_file=2,
    ) as writer:
        for number, regions in enumerate(extractor.extract(pixels)):
            writer.add(str(number), regions.features.numpy(), scores=regions.scores.numpy())
    return FeatureStore(folder), pixels


def random_images(*sizes: tuple[int, int]) -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for h, w in sizes]


@pytest.mark.parametrize("resize", ["square", "aspect"])
def test_pixels_survive_the_store_and_the_mask_marks_the_image(resize: str, tmp_path: Path) -> None:
    store, pixels = write_store(tmp_path, random_images((48, 48), (30, 90), (100, 20)), resize)
    batch = store.gather([2, 0, 1, 2])
    assert (store.pixels, store.dim, store.regions) == (True, 3, 48)
    assert batch.features.dtype == torch.uint8
    assert batch.features.shape == (4, 3, 48, 48)
    for position, row in enumerate((2, 0, 1, 2)):
        _, height, width = pixels[row].shape
        assert batch.features[position, :, :height, :width].equal(pixels[row])
        assert (
            batch.mask[position].sum()
            == batch.mask[position, :height, :width].sum()
            == height * width
        )
        assert not batch.features[position].any(dim=0)[~batch.mask[position]].any()


def test_two_branch_model_trains_on_pixels(tmp_path: Path) -> None:
    store, _ = write_store(tmp_path, random_images((48, 48), (30, 90)), "square")
    torch.manual_seed(0)
    encoder = {
        "name": "BEANEncoder",
        "backbone": "resnet10t",
        "model_arguments": SMALL,
        "maps": 7,
        "crop": 32,
        "image_size": 48,
    }
    model = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 5,
            "image_encoder": encoder,
            "text_encoder": "ProjectionEncoder",
        },
        feature_dim=store.dim,
        text_dim=4,
        text_format="vectors",
    )
    text = TextBatch(torch.randn(2, 4), torch.ones(2, dtype=torch.int64))
    batch = Batch(["a", "b"], store.gather([0, 1]), text, torch.eye(2, dtype=torch.bool))
    scores = model(batch.to(torch.device("cpu")))
    assert scores.cross.shape == (2, 2)
    scores.cross.sum().backward()
    assert all(weight.grad is not None for weight in model.image_encoder.parameters())
    single = [
        model.eval().embed_images(RegionBatch(*(part[n : n + 1] for part in batch.regions)))
        for n in range(2)
    ]
    torch.testing.assert_close(
        model.embed_images(batch.regions), torch.cat(single), rtol=1e-4, atol=1e-5
    )
