"""Promises of every registered feature extractor and reader of published features."""

import base64
import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

from bifocal import registry
from bifocal.datasets import Dataset
from bifocal.features.base import (
    FeatureExtractor,
    FeatureReader,
    FeatureSource,
    GridExtractor,
    ImageRegions,
)
from bifocal.features.writer import FeatureWriter
from bifocal.onnx.pixels import center_box

PACKAGE = "bifocal.features.extractors"
PARTS = registry.registered(PACKAGE)
READERS = sorted(name for name, part in PARTS.items() if issubclass(part, FeatureReader))
EXTRACTORS = sorted(PARTS.keys() - set(READERS))
TIMM = {
    "backbone": "resnet10t",
    "size": 64,
    "model_arguments": {"channels": [8, 16, 24, 32], "stem_width": 8},
}
DETECTOR = {"num_classes": 4, "min_size": 64, "max_size": 96, "rpn_post_nms_top_n_test": 20}
CLIP = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 16, "layers": 1, "head_width": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "BottomUp": {
        "regions": 4,
        "size": 96,
        "model_arguments": {"blocks": [1, 1, 1, 1], "width": 4, "classes": 5},
    },
    "Grid": {"stage": 3, "coordinates": True},
    "PooledLayers": {"layers": ["layer2", "layer4"]},
    "OpenClip": {"tag": None, "output": "tokens", "model_arguments": CLIP},
    "MultiLevel": {"layers": ["layer3.0.bn1", "layer3"], "cells": 3},
    "Proposals": {"stage": 2, "regions": 5, "search_size": 64},
    "TenCrop": {"crop": 48},
    "Regions": {
        "detector": "fasterrcnn_mobilenet_v3_large_320_fpn",
        "regions": 3,
        "model_arguments": DETECTOR,
    },
}
"""Arguments of small extractors, besides arguments of a timm backbone."""
SIZES = ((64, 64), (80, 48), (40, 70))
"""Width and height of the test images."""


@functools.cache
def extractor(name: str) -> FeatureExtractor:
    torch.manual_seed(0)
    arguments = (
        ARGUMENTS.get(name, {})
        if name in ("BottomUp", "OpenClip", "Regions")
        else TIMM | ARGUMENTS.get(name, {})
    )
    built: FeatureExtractor = registry.build(PACKAGE, {"name": name, **arguments})
    if name == "Regions":  # random weights that give boxes of different scores
        for key, weights in built.backbone.network.named_parameters():
            if weights.ndim > 1:
                nn.init.kaiming_normal_(weights).mul_(0.05 if "pred" in key else 1.0)
    return built


def _input_of(built: GridExtractor, image: Image.Image) -> torch.Tensor:
    """Return the pixels that an exported graph reads."""
    pixels: torch.Tensor = built.preprocess(image)
    side = getattr(built, "crop_side", None)
    if side is None:
        return pixels
    x0, y0, x1, y1 = center_box(pixels.shape[2], pixels.shape[1], side)
    return pixels[:, y0:y1, x0:x1]


@functools.cache
def images() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8)).resize(
            (width, height)
        )
        for width, height in SIZES
    ]


@torch.inference_mode()
def extract(name: str, *indices: int) -> list[ImageRegions]:
    built = extractor(name)
    return built.extract([built.preprocess(images()[index]) for index in indices])


def assert_valid(regions: ImageRegions, source: FeatureExtractor | FeatureSource) -> None:
    """Check shapes and ranges by the rules of the feature store, which names the first error."""
    count, dim = regions.features.shape
    assert 0 < count <= source.regions
    assert dim == source.dim
    assert regions.features.float().abs().max() <= 65504
    assert regions.scores is None or regions.scores.shape == (count,)
    if regions.boxes is not None:
        assert regions.boxes.shape == (count, 4)
        assert (regions.boxes >= 0).all()
        assert (regions.boxes <= 1 + 1e-6).all()
        assert (regions.boxes[:, :2] <= regions.boxes[:, 2:]).all()


def assert_equal(regions: ImageRegions, expected: ImageRegions) -> None:
    assert regions.truth == expected.truth
    for tensor, other in zip(regions[:3], expected[:3], strict=True):
        assert (tensor is None) == (other is None)
        if tensor is not None and other is not None:
            # Kernels differ with the batch size; a detector amplifies the rounding.
            torch.testing.assert_close(
                tensor, other, rtol=1e-3, atol=1e-3 * float(other.abs().max())
            )


@pytest.mark.parametrize("name", EXTRACTORS)
class TestEveryExtractor:
    def test_builds_with_the_defaults_of_its_paper(self, name: str) -> None:
        with torch.device("meta"):  # no memory for the weights of large networks
            assert isinstance(PARTS[name](), FeatureExtractor)

    def test_returns_valid_regions_of_every_image(self, name: str) -> None:
        extracted = extract(name, 0, 1, 2)
        assert len(extracted) == len(SIZES)
        for regions in extracted:
            assert_valid(regions, extractor(name))

    def test_returns_the_same_features_for_the_same_image(self, name: str) -> None:
        for first, second in zip(extract(name, 0, 1, 2), extract(name, 0, 1, 2), strict=True):
            assert first.features.equal(second.features)

    def test_does_not_depend_on_the_other_images_of_a_batch(self, name: str) -> None:
        batch = extract(name, 2, 0, 1, 0)
        for regions, index in zip(batch, (2, 0, 1, 0), strict=True):
            assert_equal(regions, extract(name, index)[0])

    def test_describes_itself_as_json_with_backbone_and_layer(self, name: str) -> None:
        description = extractor(name).describe()
        assert {"backbone", "layer"} <= json.loads(json.dumps(description)).keys()

    def test_writes_features_that_the_store_accepts(self, name: str, tmp_path: Path) -> None:
        built = extractor(name)
        with FeatureWriter(
            tmp_path, regions=built.regions, dim=built.dim, metadata=built.describe()
        ) as writer:
            for index, regions in enumerate(extract(name, 0, 1, 2)):
                boxes, scores = (
                    None if values is None else values.numpy() for values in regions[1:3]
                )
                writer.add(str(index), regions.features.numpy(), boxes, scores)
        assert writer.written == ["0", "1", "2"]

    def test_computes_the_same_cells_for_an_exported_graph(self, name: str) -> None:
        built = extractor(name)
        if isinstance(
            built, GridExtractor
        ):  # not by the name of an attribute: MultiLevel has an argument "cells"
            with torch.inference_mode():
                features, boxes = built.cells(
                    torch.stack([_input_of(built, image) for image in images()])
                )
            for cells, regions in zip(features, extract(name, 0, 1, 2), strict=True):
                # The boxes of a crop are relative to the image in the store, and to the crop in a
                # graph.
                same = boxes if getattr(built, "crop_side", None) is None else regions.boxes
                assert_equal(ImageRegions(cells, same), regions)
        else:
            assert not callable(getattr(built, "cells", None))

    def test_keeps_its_network_frozen(self, name: str) -> None:
        network = extractor(name).backbone.network
        assert not network.training
        assert not any(weight.requires_grad for weight in network.parameters())


IDS = ("train-000000-a", "train-000001-b", "train-000002-c")
"""Ids that contain the row of an array, as PrecomputedCaptions writes them."""


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    images = pd.DataFrame({"image_id": IDS, "split": "train", "width": 20, "height": 10})
    return Dataset(images, pd.DataFrame(), pd.DataFrame(), tmp_path)


def write_published(name: str, folder: Path) -> None:
    """Write two regions of five features per image in the format of a reader."""
    random = np.random.default_rng(0)
    features = random.standard_normal((len(IDS), 2, 5)).astype(np.float32)
    boxes = np.array([[0, 0, 10, 10], [5, 2, 20, 8]], np.float32)
    if name == "PrecomputedFeatures":
        np.save(folder / "train_ims.npy", features)
    for image_id, vectors in zip(IDS, features, strict=True):
        if name == "ImageArrays":
            np.savez(folder / f"{image_id}.npz", x=vectors, bbox=boxes, image_w=20, image_h=10)
        elif name == "BottomUpTSV":
            encoded = [base64.b64encode(array.tobytes()).decode() for array in (boxes, vectors)]
            with (folder / "features.tsv").open("a") as file:
                file.write("\t".join([image_id, "20", "10", "2", *encoded]) + "\n")


def open_reader(name: str, folder: Path, dataset: Dataset) -> FeatureSource:
    reader: FeatureReader = registry.build(PACKAGE, {"name": name, "path": str(folder)})
    return reader.open(dataset)


@pytest.mark.parametrize("name", READERS)
class TestEveryReader:
    def test_yields_valid_regions_of_every_image_once(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        write_published(name, tmp_path)
        source = open_reader(name, tmp_path, dataset)
        records = dict(source.read(IDS))
        assert sorted(records) == sorted(IDS)
        for regions in records.values():
            assert_valid(regions, source)

    def test_yields_the_requested_images_only(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        write_published(name, tmp_path)
        source = open_reader(name, tmp_path, dataset)
        ((image_id, regions),) = source.read(IDS[1:2])
        assert image_id == IDS[1]
        assert_equal(regions, dict(source.read(IDS))[image_id])

    def test_describes_itself_as_json(self, name: str, dataset: Dataset, tmp_path: Path) -> None:
        write_published(name, tmp_path)
        json.dumps(open_reader(name, tmp_path, dataset).describe())

    def test_missing_files_are_an_error_that_names_the_path(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match="nowhere"):
            open_reader(name, tmp_path / "nowhere", dataset)

    def test_image_without_features_is_an_error(
        self, name: str, dataset: Dataset, tmp_path: Path
    ) -> None:
        write_published(name, tmp_path)
        dataset.images.loc[0, "image_id"] = unknown = "train-000009-z"
        with pytest.raises(ValueError, match=unknown):
            list(open_reader(name, tmp_path, dataset).read([unknown]))
