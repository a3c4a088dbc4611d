"""Export of a contrastive model's pointing head: ONNX graphs of patches and of phrases."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bifocal.backbones.open_clip import OpenClipBackbone, open_clip_library
from bifocal.backbones.state import load_into, read_safetensors
from bifocal.durable.cached import file_digest, write_cached
from bifocal.export.graphs.parity import Parity, compare_graph, random_sentences
from bifocal.export.graphs.write import Shape, check_shapes, run_in_fresh_process, write_graph
from bifocal.localization.heads import MaskCLIP
from bifocal.onnx.pointing.head import DESCRIPTION
from bifocal.onnx.pointing.pointer import PATCHES, PHRASES
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.text.transformer.clip_bpe import clip_tokenizer


class Patches(nn.Module):
    """Unit vectors (B, rows, columns, d) of the patches of images (B, 3, size, size) uint8."""

    def __init__(self, backbone: OpenClipBackbone, head: MaskCLIP) -> None:
        super().__init__()
        self.backbone, self.head, self.network = backbone, head, backbone.network

    def forward(self, pixels: Tensor) -> Tensor:
        return self.head.patches(self.network.visual, self.backbone.normalize(pixels))


class PhraseTower(nn.Module):
    """Vectors (B, d) of phrases from padded ids (B, context length)."""

    def __init__(self, backbone: OpenClipBackbone) -> None:
        super().__init__()
        self.network = backbone.network.cpu()

    def forward(self, ids: Tensor) -> Tensor:
        vectors: Tensor = self.network.encode_text(ids)
        return vectors


def export_contrastive_head(
    description: Mapping[str, Any], weights: Path, head: MaskCLIP, folder: Path, seed: int
) -> list[Parity]:
    """Write the head of a contrastive model; see ``bifocal.export.pointing.export_head``."""
    backbone = load_towers(description, weights, head)
    tokenizer = clip_tokenizer(backbone.tokenizer, backbone.context_length)
    if tokenizer is None:
        raise ValueError(
            f"the tokenizer of {backbone.name} is not CLIP's byte pair encoding: it cannot be "
            "exported"
        )
    folder.mkdir(parents=True, exist_ok=True)
    towers = [dict(description), file_digest(weights)]
    key = [*towers, type(head).__name__, backbone.size]
    write_cached(
        key, folder / PATCHES, run_in_fresh_process, _export_patches, description, weights, head
    )
    write_cached(
        towers, folder / PHRASES, run_in_fresh_process, _export_phrases, description, weights, head
    )
    tokenizer.save(str(folder / TOKENIZER))
    values = {
        **head.values(),
        "sizes": [backbone.size],
        "interpolation": description["preprocessing"]["interpolation"],
    }
    (folder / DESCRIPTION).write_text(json.dumps(values, indent=2) + "\n")
    return list(_compare(backbone, head, folder, seed))


def load_towers(description: Mapping[str, Any], weights: Path, head: MaskCLIP) -> OpenClipBackbone:
    """Return both towers with the weights of a file, for images of the head's size."""
    name, arguments = description["backbone"], dict(description["model_arguments"])
    if head.size is not None:
        stated = (open_clip_library().get_model_config(name) or {}) | arguments
        arguments["vision_cfg"] = stated.get("vision_cfg", {}) | {"image_size": head.size}
    backbone = OpenClipBackbone(name, None, arguments)
    tower = backbone.network.visual
    if (
        type(tower).__name__ != "VisionTransformer"
        or tower.attn_pool is not None
        or tower.proj is None
    ):
        raise ValueError(
            f"the image tower of {backbone.name} is a {type(tower).__name__} with other "
            "pooling than a class token, or of another library: expected a vision transformer "
            "of open_clip, such as ViT-B-16"
        )
    preprocessing = description["preprocessing"]
    backbone.mean, backbone.std = tuple(preprocessing["mean"]), tuple(preprocessing["std"])
    state = read_safetensors(weights)
    open_clip_library().model.resize_pos_embed(state, backbone.network)
    load_into(backbone.network, state, weights)
    return backbone


def _export_patches(
    description: Mapping[str, Any], weights: Path, head: MaskCLIP, file: Path
) -> None:
    backbone = load_towers(description, weights, head)
    pixels = torch.zeros(3, 3, backbone.size, backbone.size, dtype=torch.uint8)
    shapes: dict[str, Shape] = {"pixels": ("batch", 3, backbone.size, backbone.size)}
    write_graph(Patches(backbone, head).eval(), [pixels], shapes, ["patches"], file)
    check_shapes(file, shapes)


def _export_phrases(
    description: Mapping[str, Any], weights: Path, head: MaskCLIP, file: Path
) -> None:
    backbone = load_towers(description, weights, head)
    shapes: dict[str, Shape] = {"ids": ("batch", backbone.context_length)}
    ids = torch.ones(3, backbone.context_length, dtype=torch.int64)
    write_graph(PhraseTower(backbone).eval(), [ids], shapes, ["vectors"], file)
    check_shapes(file, shapes)


def _compare(
    backbone: OpenClipBackbone, head: MaskCLIP, folder: Path, seed: int
) -> Iterator[Parity]:
    generator, size = torch.Generator().manual_seed(seed), backbone.size
    sentences = {(batch, length): words for batch, length, words in random_sentences(seed)}

    def images(batch: int, _: int) -> tuple[Tensor]:
        return (
            torch.randint(0, 256, (batch, 3, size, size), generator=generator, dtype=torch.uint8),
        )

    def ids(batch: int, length: int) -> tuple[Tensor]:
        return (backbone.tokenizer([" ".join(words) for words in sentences[batch, length]]).long(),)

    patches, phrases = Patches(backbone, head).eval(), PhraseTower(backbone).eval()
    yield from compare_graph(
        "patches", folder / PATCHES, patches, images, lengths=(1,), min_scale=1.0
    )
    yield from compare_graph("phrases", folder / PHRASES, phrases, ids, min_scale=1.0)
