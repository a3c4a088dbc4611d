"""Networks of files: the backbone of the demo, and pointing heads without a run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bifocal.backbones.state import load_weights_file
from bifocal.registry import build
from pipelines.app.training.networks import demo_section, head_of_weights
from tests.pipelines.app.conftest import Command


@pytest.fixture
def cache(weights: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's cache, which all tests share: an export takes seconds."""
    folder = weights.with_name("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


def test_the_demo_backbone_computes_features_of_photographs() -> None:
    section = demo_section()
    extractor = build("bifocal.features.extractors", section["extractor"])
    before = extractor.backbone.network.conv1[0].weight.clone()
    load_weights_file(extractor.backbone, Path(section["weights"]["path"]))
    assert not extractor.backbone.network.conv1[0].weight.equal(before)
    with torch.inference_mode():
        (regions,) = extractor.extract([torch.zeros(3, 224, 224, dtype=torch.uint8)])
    assert regions.features.shape == (14 * 14, 64)
    assert regions.features.isfinite().all()


def test_a_head_is_exported_once_for_the_content_of_its_files(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(description: object, file: Path, head: object, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "head.json").write_text("{}")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("bifocal.export.pointing.export_head", write)
    file = weights / "mobile.safetensors"
    for change, heads in ((None, 1), (file.read_bytes, 1), (file.touch, 2)):
        if change:
            change()
        head_of_weights(file)
        assert len(list(tmp_path.rglob("head.json"))) == heads


@pytest.mark.usefixtures("cache")
def test_where_needs_no_run(weights: Path, tmp_path: Path, command: Command) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    picture = tmp_path / "where.png"
    arguments = (
        "where",
        tmp_path / "image.png",
        "dog",
        "--weights",
        weights / "mobile.safetensors",
    )
    for extra in ((), ("--accurate",)):
        result = command(*arguments, "--picture", picture, *extra)
        assert result.exit_code == 0, result.output
        assert "'dog'" in result.output
        assert "probability" in result.output
        assert Image.open(picture).size == (90, 60)
    result = command(*arguments, "--run", tmp_path)
    assert "exclude each other" in result.output
