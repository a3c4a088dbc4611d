"""ONNX Runtime computes the same features as torch; it is used for large datasets whose features
one graph computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bifocal.datasets import Dataset, read_dataset, write_dataset
from bifocal.datasets.base import CaptionEntry, Corpus, ImageEntry
from bifocal.export.backbone import export_backbone
from bifocal.export.extraction import FEWEST, GRAPH, use_onnx
from bifocal.features import FeatureWriter
from bifocal.features.extraction import NetworkFeatures, write_features
from bifocal.features.extractors import Grid
from bifocal.serialization import write_tensors
from bifocal.training.weights.source import OpenedSource, open_source

NETWORK: dict[str, Any] = {
    "backbone": "resnet10t",
    "model_arguments": {"channels": [8, 16, 16, 16], "stem_width": 8},
    "stage": 3,
}
SIZES = [(90, 70), (64, 80), (70, 70), (120, 66), (65, 65)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Noise of several shapes."""
    folder = tmp_path_factory.mktemp("dataset")
    random = np.random.default_rng(0)
    images = []
    for number, (width, height) in enumerate(SIZES):
        pixels = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        images.append(ImageEntry(str(number), f"{number}.png", "train"))
    captions = [CaptionEntry(number, str(number), "noise") for number in range(len(SIZES))]
    corpus = Corpus(folder, images, captions)
    write_dataset(
        folder, "noise", corpus, copy_images=False, max_pixels=10**6, max_rejected_fraction=0.0
    )
    return read_dataset(folder)


def opened(dataset: Dataset, folder: Path, **arguments: Any) -> OpenedSource:
    weights = folder / "random.safetensors"
    torch.manual_seed(0)
    write_tensors(weights, Grid(**NETWORK, size=64).backbone.network.state_dict(), {})
    extractor = {"name": "Grid", **NETWORK, "size": 64, **arguments}
    source = {"name": "FromFile", "path": str(weights)}
    return open_source(extractor, source, dataset, folder, batch_size=3, seed=0)


@pytest.fixture(autouse=True)
def cache(graph_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share the exports of all tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(graph_cache))


@pytest.mark.parametrize("resize", ["square", "crop"])
def test_features_are_those_of_torch_and_the_export_copies_the_graph(
    dataset: Dataset, resize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, metadata, _ = opened(dataset, tmp_path, resize=resize, coordinates=True)
    ids = [str(number) for number in range(len(SIZES))]
    expected = dict(source.read(ids))
    use_onnx(source, metadata, tmp_path, FEWEST)
    found = dict(source.read(ids))
    assert list(found) == ids
    for image_id, regions in found.items():
        torch.testing.assert_close(
            regions.features, expected[image_id].features, rtol=1e-3, atol=1e-4
        )
        torch.testing.assert_close(regions.boxes, expected[image_id].boxes, rtol=0, atol=1e-6)

    with FeatureWriter(
        tmp_path, regions=source.regions, dim=source.dim, metadata=metadata
    ) as writer:
        write_features(found.items(), writer, total=len(ids))
    monkeypatch.setattr(
        "bifocal.export.extraction.run_in_fresh_process", None
    )  # an export would call it
    (tmp_path / "onnx").mkdir()
    export_backbone(tmp_path, tmp_path / "onnx")
    assert (tmp_path / "onnx" / GRAPH).is_file()


def test_torch_computes_features_without_a_graph(
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no operator aten::unknown")

    monkeypatch.setattr("bifocal.export.extraction.write_backbone", fail)
    source, metadata, _ = opened(dataset, tmp_path)
    use_onnx(source, metadata, tmp_path, FEWEST)
    assert isinstance(source, NetworkFeatures)
    assert source.graph_cells is None
    assert "no operator aten::unknown" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "images"), [({}, FEWEST - 1), ({"resize": "aspect"}, FEWEST)]
)
def test_torch_computes_few_features_and_those_of_images_that_keep_their_shape(
    dataset: Dataset, arguments: dict[str, Any], images: int, tmp_path: Path
) -> None:
    source, metadata, _ = opened(dataset, tmp_path, **arguments)
    use_onnx(source, metadata, tmp_path, images)
    assert isinstance(source, NetworkFeatures)
    assert source.graph_cells is None
