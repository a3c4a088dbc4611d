"""Towers of open_clip as ONNX: the vectors of sentences and of image files are those of the
library."""

import json
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from bifocal.export.towers import export_towers
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import model_hash
from tests.bifocal.contrastive import write_clip
from tests.bifocal.towers import write_immich

SENTENCES = [
    "a dog in the snow",
    "Two  CATS, it's 3 o'clock!",
    "x " * 99,
    "",
    "Ein Hund, im Schnee_mann!",
    "犬が走る",
]


class Towers(NamedTuple):
    weights: Path
    onnx: Path


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Towers:
    folder = tmp_path_factory.mktemp("towers")
    weights = write_clip(folder / "weights")
    parities = export_towers(weights, folder / "onnx")
    assert {parity.branch for parity in parities} == {"visual", "textual"}
    assert max(parity.difference for parity in parities) < 1e-5
    return Towers(weights, folder / "onnx")


def image_file(width: int, height: int) -> bytes:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def expected(weights: Path, files: list[bytes]) -> tuple[Any, Any]:
    """Return the vectors by open_clip's own loader, transform and tokenizer."""
    name = f"local-dir:{weights}"
    model, preprocess = open_clip.create_model_from_pretrained(name)
    pixels = torch.stack([preprocess(Image.open(BytesIO(file))) for file in files])
    with torch.inference_mode():
        texts = model.eval().encode_text(open_clip.get_tokenizer(name)(SENTENCES), normalize=True)
        return texts.numpy(), model.encode_image(pixels, normalize=True).numpy()


def test_vectors_are_those_of_open_clip(towers: Towers, tmp_path: Path) -> None:
    files = [image_file(60, 40), image_file(33, 90), image_file(32, 32)]
    texts, images = expected(towers.weights, files)
    immich = write_immich(
        towers.weights, tmp_path / "immich"
    )  # graphs of one sentence and of one image
    for folder in (towers.onnx, immich):
        embedder = Embedder(folder)
        assert embedder.inputs == ("text", "image")
        np.testing.assert_allclose(embedder.embed_sentences(SENTENCES), texts, atol=2e-6)
        np.testing.assert_allclose(embedder.embed_images(files), images, atol=2e-6)
    assert model_hash(towers.onnx) != model_hash(immich)


def test_the_layout_is_immichs(towers: Towers) -> None:
    # immich-app/immich, machine-learning/immich_ml/models/clip: files and keys that its loader
    # reads.
    preprocessing = json.loads((towers.onnx / "visual" / "preprocess_cfg.json").read_text())
    assert {"size", "mean", "std", "interpolation", "resize_mode"} <= set(preprocessing)
    assert json.loads((towers.onnx / "config.json").read_text())["text_cfg"]["context_length"] == 16
    assert json.loads((towers.onnx / "textual" / "tokenizer_config.json").read_text())["pad_token"]
    embedder = Embedder(towers.onnx)
    for session, name, kind in (
        (embedder.images, "image", "float"),
        (embedder.texts, "text", "int32"),
    ):
        (value,) = session.get_inputs()
        assert (value.name, value.type) == (name, f"tensor({kind})")


def test_other_preprocessing_and_other_tokenizers_are_refused(
    towers: Towers, tmp_path: Path
) -> None:
    folder = shutil.copytree(towers.onnx, tmp_path / "onnx")
    file = folder / "visual" / "preprocess_cfg.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"resize_mode": "longest"}))
    with pytest.raises(
        ValueError, match=r"has the size 32 x 32 and the resize_mode 'longest': expected a square"
    ):
        Embedder(folder)
    with pytest.raises(
        FileNotFoundError, match=r"has no open_clip_config.json and open_clip_model.safetensors"
    ):
        export_towers(tmp_path, tmp_path / "x")
    weights = shutil.copytree(towers.weights, tmp_path / "weights")
    file = weights / "open_clip_config.json"
    config = json.loads(file.read_text())
    config["model_cfg"]["text_cfg"] |= {"hf_tokenizer_name": "tiny", "tokenizer_mode": "clips"}
    file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"cannot be exported: it differs from its tokenizer.json"):
        export_towers(weights, tmp_path / "x")
