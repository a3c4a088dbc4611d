"""The exported pointing head equals torch, at other sizes than the traced one, with and without a
sentence encoder."""

import json
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import normalize

from bifocal.export.pointing import export_head, load_class_logits
from bifocal.localization.heads import ClassMixture
from bifocal.onnx.pointing import PointingHead
from bifocal.onnx.pointing.head import cell_classes, heatmap, phrase_map
from bifocal.text.transformer.folder import TransformerFolder
from bifocal.text.transformer.network import SentenceTower
from tests.bifocal.pointing_heads import (
    DEFINITIONS,
    NAMES,
    PADDED,
    describe,
    write_head,
    write_network,
)
from tests.bifocal.tiny_transformer import write_tiny_transformer

POOLED = {
    "backbone": "resnet10t",
    "model_arguments": {"channels": [8, 8, 16, 16], "stem_width": 8},
}


@pytest.fixture(scope="module", autouse=True)
def cache(graph_cache: Path) -> Iterator[None]:
    """Share the exports of all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(graph_cache))
        yield


def image_file(side: int = 80) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = BytesIO()
    Image.fromarray(pixels).resize((120, 80)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("network", [PADDED, pytest.param(POOLED, marks=pytest.mark.slow)])
def test_the_graph_takes_any_multiple_of_the_stride(
    network: dict[str, Any], tmp_path: Path
) -> None:
    head, difference = write_head(tmp_path, network)
    assert difference < 1e-4
    module = load_class_logits(describe(network), tmp_path / "weights.safetensors", head)
    content = image_file()
    with Image.open(BytesIO(content)) as opened, torch.inference_mode():
        logits = [
            module(
                torch.from_numpy(
                    np.array(opened.resize((size, size), Image.Resampling.BICUBIC))
                ).movedim(2, 0)[None]
            )
            for size in (96, 64)
        ]
    served = PointingHead(tmp_path / "head")
    (weights,) = served.weights(["a red fox"])
    (place,) = served.locate(content, ["a red fox"], 24)
    maps = [phrase_map(cell_classes(values[0].numpy()), weights) for values in logits]
    expected = heatmap(maps, 24, head.sigma, head.center)
    assert place.heatmap == pytest.approx(expected, abs=1e-3)


@pytest.mark.slow
def test_similarities_are_those_of_the_sentence_encoder(tmp_path: Path) -> None:
    texts = [name for names in NAMES for name in names] + DEFINITIONS + ["a photo of a dog"]
    encoder = write_tiny_transformer(texts, folder=tmp_path / "encoder")
    write_head(tmp_path, shown_with={2: ["siren"]}, path=encoder)
    folder = TransformerFolder.read(encoder)
    tower, tokenizer = SentenceTower.load(folder), folder.tokenizer()

    def embed(text: str) -> torch.Tensor:
        ids, lengths = tokenizer.batch([text])
        with torch.inference_mode():
            return normalize(tower(torch.from_numpy(ids), torch.from_numpy(lengths)), dim=1)[
                0
            ].double()

    similarity = PointingHead(tmp_path / "head").similarity
    for phrase in ("red dog", "siren"):
        expected = []
        for number, definition in enumerate(DEFINITIONS):
            names = [*NAMES[number], *(["siren"] if number == 2 else [])]
            total = 0.0
            for text in (phrase, f"a photo of a {phrase}"):
                nearest = max(float(embed(text) @ embed(name)) for name in names)
                total += nearest + float(embed(text) @ embed(definition))
            expected.append(total / 4)
        # The encoder computes in int8.
        assert similarity([phrase])[0] == pytest.approx(expected, abs=0.05)
    assert (
        similarity(["a long phrase beside it", "red dog"])[1].tolist()
        == similarity(["red dog"])[0].tolist()
    )


def test_without_a_sentence_encoder_words_decide(tmp_path: Path) -> None:
    write_head(tmp_path)
    weights = PointingHead(tmp_path / "head").weights(["foxes", "the cat", "zzz"])
    assert weights.argmax(axis=1).tolist()[:2] == [0, 1]
    assert weights[2] == pytest.approx([1 / 3] * 3)  # no class is like an unknown word


@pytest.mark.slow
def test_the_cache_keeps_the_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head, _ = write_head(tmp_path)
    monkeypatch.setattr(
        "bifocal.export.pointing.run_in_fresh_process", None
    )  # an export would call it
    other = replace(head, sizes=(64,))
    export_head(
        describe(PADDED), tmp_path / "weights.safetensors", other, tmp_path / "other", seed=0
    )
    assert json.loads((tmp_path / "other" / "head.json").read_text())["sizes"] == [64]


def test_other_classes_than_the_names_are_an_error(tmp_path: Path) -> None:
    network = {**PADDED, "model_arguments": {**PADDED["model_arguments"], "num_classes": 7}}
    write_network(network, tmp_path / "weights.safetensors")
    with pytest.raises(ValueError, match="has 7 classes, and there are 1000 names"):
        load_class_logits(describe(network), tmp_path / "weights.safetensors", ClassMixture())


def test_a_classifier_behind_further_layers_is_an_error(tmp_path: Path) -> None:
    network = {"backbone": "mobilenetv3_small_050", "model_arguments": {}}
    write_network(network, tmp_path / "weights.safetensors")
    with pytest.raises((ValueError, RuntimeError)):
        load_class_logits(describe(network), tmp_path / "weights.safetensors", ClassMixture())
