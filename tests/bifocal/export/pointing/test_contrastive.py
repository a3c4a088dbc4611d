"""The exported head of a contrastive model equals torch, at its own and at another size of the
image."""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from torch.nn.functional import normalize

from bifocal.export.pointing import export_head
from bifocal.export.pointing.contrastive import Patches, load_towers
from bifocal.features.extractors import OpenClip
from bifocal.localization.heads import MaskCLIP
from bifocal.onnx.pointing import FOLDER, ContrastivePointer, open_pointer
from bifocal.onnx.pointing.head import heatmap
from bifocal.registry import build
from tests.bifocal.contrastive import SMALL


@pytest.fixture(scope="module")
def towers(
    graph_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[dict[str, Any], Path]]:
    """Return the description and the weights of a small random model."""
    folder = tmp_path_factory.mktemp("towers")
    torch.manual_seed(0)
    backbone = OpenClip(tag=None, model_arguments=SMALL).backbone
    state = backbone.network.state_dict()
    save_file(
        {
            name: tensor + 0.1 * torch.randn_like(tensor)
            for name, tensor in state.items()
            if tensor.is_floating_point()
        },
        folder / "weights.safetensors",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        yield backbone.describe(), folder / "weights.safetensors"


def photograph() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((90, 60))


@pytest.mark.parametrize("size", [None, 48])
def test_served_heatmaps_are_those_of_torch(
    towers: tuple[dict[str, Any], Path], size: int | None, tmp_path: Path
) -> None:
    description, weights = towers
    head: MaskCLIP = build("bifocal.localization.heads", {"name": "MaskCLIP", "size": size})
    parities = export_head(description, weights, head, tmp_path / FOLDER, seed=0)
    assert {parity.branch for parity in parities} == {"patches", "phrases"}
    assert max(parity.difference for parity in parities) < 1e-4
    pointer = open_pointer(tmp_path, embedder=None)  # type: ignore[arg-type]  # only localizers need it
    assert isinstance(pointer, ContrastivePointer)
    image, file = photograph(), BytesIO()
    image.save(file, "PNG")
    places = pointer.locate(file.getvalue(), ["a red dog", "snow"], side=24)
    backbone, side = load_towers(description, weights, head), size or 32
    pixels = torch.from_numpy(
        np.array(image.resize((side, side), Image.Resampling.BICUBIC))
    ).movedim(2, 0)[None]
    with torch.inference_mode():
        patches = Patches(backbone, head)(pixels)[0]
        for phrase, place in zip(("a red dog", "snow"), places, strict=True):
            texts = normalize(backbone.embed_sentences([phrase, f"a photo of a {phrase}"]), dim=1)
            values = patches @ normalize(texts.sum(dim=0), dim=0)
            assert place.heatmap == pytest.approx(
                heatmap([values.numpy()], 24, head.sigma, head.center), abs=5e-3
            )
            assert (place.probability, place.present) == (None, True)
    assert patches.shape[:2] == (side // 8, side // 8)


def test_towers_without_a_class_token_and_other_networks_are_errors(
    towers: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    description, weights = towers
    head = build("bifocal.localization.heads", "MaskCLIP")
    with pytest.raises(ValueError, match="open_clip has no model 'resnet18'"):
        export_head({**description, "backbone": "resnet18"}, weights, head, tmp_path, seed=0)
    resnet = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    arguments = {**SMALL, "vision_cfg": resnet}
    with pytest.raises(
        ValueError, match=r"a ModifiedResNet .*expected a vision transformer of open_clip"
    ):
        export_head({**description, "model_arguments": arguments}, weights, head, tmp_path, seed=0)
