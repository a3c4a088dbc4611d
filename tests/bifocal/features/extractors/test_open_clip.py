"""Towers of open_clip, with random weights, against the library's own calls and transform."""

from pathlib import Path

import numpy as np
import pytest
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from safetensors.torch import save_file

from bifocal.features.extractors import OpenClip
from bifocal.training.weights import FromFile

SMALL = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "width": 16, "layers": 2, "head_width": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 64, "width": 16, "heads": 2, "layers": 1},
}
IMAGE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 90, 3), dtype=np.uint8))


def test_projection_is_encode_image_of_the_librarys_transform() -> None:
    torch.manual_seed(0)
    extractor = OpenClip(tag=None, model_arguments=SMALL)
    network = extractor.backbone.network
    transform = image_transform_v2(PreprocessCfg(**network.visual.preprocess_cfg), is_train=False)
    (regions,) = extractor.extract([extractor.preprocess(IMAGE)])
    torch.testing.assert_close(
        regions.features, network.encode_image(transform(IMAGE)[None]), rtol=1e-4, atol=1e-5
    )
    assert regions.boxes is not None
    np.testing.assert_allclose(regions.boxes[0], [20 / 90, 0, 70 / 90, 1], atol=0.02)


def test_tokens_are_normalized_and_give_the_projection_without_attention_between_them() -> None:
    torch.manual_seed(0)
    extractor = OpenClip(tag=None, output="tokens", model_arguments=SMALL)
    tower = extractor.backbone.network.visual
    tower.ln_post.weight.data.uniform_(0.5, 2)
    tower.output_tokens = True
    pixels = extractor.preprocess(IMAGE)[:, :, 13:45]
    _, expected = tower(extractor.backbone.normalize(pixels[None]))
    features, boxes = extractor.cells(pixels[None])
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-5)
    assert (extractor.regions, extractor.dim, len(boxes)) == (16, 16, 16)


def test_published_weights_state_the_preprocessing() -> None:
    with torch.device("meta"):
        siglip = OpenClip("ViT-B-16-SigLIP", "webli").describe()["preprocessing"]
        clip = OpenClip().describe()["preprocessing"]
    assert (siglip["resize"], siglip["mean"], siglip["interpolation"]) == (
        "square",
        (0.5, 0.5, 0.5),
        "bicubic",
    )
    assert (clip["resize"], clip["scaled"], clip["size"]) == ("crop", 224, 224)


def test_unknown_names_are_errors_and_a_file_gives_both_towers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="open_clip has no model 'ViT-B-33'"):
        OpenClip("ViT-B-33")
    with pytest.raises(
        ValueError, match="open_clip has no weights 'laion3b' of ViT-B-32; some of them: openai"
    ):
        OpenClip(tag="laion3b")
    first, second = (OpenClip(tag=None, model_arguments=SMALL).backbone for _ in range(2))
    state = {name: tensor.contiguous() for name, tensor in first.network.state_dict().items()}
    save_file(state, tmp_path / "clip.safetensors")
    FromFile(tmp_path / "clip.safetensors").load(second)
    assert first.network.text_projection.equal(second.network.text_projection)
    assert first.network.visual.proj.equal(second.network.visual.proj)
