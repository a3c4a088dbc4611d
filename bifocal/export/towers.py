"""Export of a contrastive model of open_clip as two ONNX graphs, in the layout of
``bifocal.onnx.towers``."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.backbones.open_clip import OpenClipBackbone, open_clip_library
from bifocal.backbones.state import load_weights_file
from bifocal.durable import write_json
from bifocal.export.graphs.parity import Parity, compare_graph
from bifocal.export.graphs.write import Shape, check_shapes, run_in_fresh_process, write_graph
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.onnx.towers import CONFIG, GRAPH, IMAGES, PREPROCESSING, TEXTS, TOKENIZER_CONFIG
from bifocal.text.transformer.clip_bpe import clip_tokenizer, is_published

WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors")
"""Files of both towers in a folder that open_clip publishes, in its order."""


class _Images(nn.Module):
    def __init__(self, backbone: OpenClipBackbone) -> None:
        super().__init__()
        self.network, size = backbone.network, backbone.size
        self.shapes: dict[str, Shape] = {"image": ("batch", 3, size, size)}
        self.examples = [torch.zeros(3, 3, size, size)]

    def forward(self, image: Tensor) -> Tensor:
        return normalize(self.network.encode_image(image), dim=-1)


class _Texts(nn.Module):
    def __init__(self, backbone: OpenClipBackbone) -> None:
        super().__init__()
        self.network = backbone.network
        self.shapes: dict[str, Shape] = {"text": ("batch", backbone.context_length)}
        self.examples = [backbone.tokenizer(["a", "a dog", "two"]).int()]

    def forward(self, text: Tensor) -> Tensor:
        return normalize(self.network.encode_text(text), dim=-1)


TOWERS: dict[Path, type[_Images] | type[_Texts]] = {IMAGES: _Images, TEXTS: _Texts}


def weights_of(source: Path) -> Path | None:
    """Return the weights in a folder that open_clip writes for a hub; None in another folder."""
    found = [source / name for name in WEIGHTS if (source / name).is_file()]
    return found[0] if found and (source / "open_clip_config.json").is_file() else None


def export_towers(source: Path, folder: Path) -> list[Parity]:
    """Write the graphs of a folder that open_clip writes for a hub, and compare them with torch.

    Args:
        source: folder with ``open_clip_config.json``, ``open_clip_model.safetensors`` and the files
            of a tokenizer.

    Raises:
        ValueError: the tokens cannot be computed without open_clip.
    """
    backbone = _load(source)
    for part in TOWERS:
        (folder / part).mkdir(parents=True, exist_ok=True)
    _write_tokenizer(backbone, folder / TEXTS)
    name = f"local-dir:{source}"
    write_json(folder / CONFIG, open_clip_library().get_model_config(name))
    preprocessing = open_clip_library().get_model_preprocess_cfg(backbone.network)
    write_json(folder / IMAGES / PREPROCESSING, preprocessing)
    for part in TOWERS:
        run_in_fresh_process(_export, source, part, folder / part / GRAPH)
    return list(_compare(backbone, folder))


def _load(source: Path) -> OpenClipBackbone:
    weights = weights_of(source)
    if weights is None:
        raise FileNotFoundError(
            f"{source} has no open_clip_config.json and {WEIGHTS[0]}, as open_clip writes them"
        )
    backbone = OpenClipBackbone(f"local-dir:{source}", None)
    load_weights_file(backbone, weights)
    return backbone


def _write_tokenizer(backbone: OpenClipBackbone, folder: Path) -> None:
    tokenizer = backbone.tokenizer
    own = clip_tokenizer(tokenizer, backbone.context_length)
    if own is not None:
        own.save(str(folder / TOKENIZER))
        # open_clip pads with the id 0.
        write_json(folder / TOKENIZER_CONFIG, {"pad_token": own.id_to_token(0)})
        return
    if not is_published(tokenizer):
        raise ValueError(
            f"the tokenizer of {backbone.name} cannot be exported: it differs from its "
            "tokenizer.json"
        )
    tokenizer.tokenizer.save_pretrained(folder)


def _export(source: Path, part: Path, file: Path) -> None:
    module = TOWERS[part](_load(source)).eval()
    write_graph(module, module.examples, module.shapes, ["embeddings"], file)
    check_shapes(file, module.shapes)


def _compare(backbone: OpenClipBackbone, folder: Path) -> Iterator[Parity]:
    generator, texts = (
        torch.Generator().manual_seed(0),
        ["a dog", "two red birds in the snow", "", "x " * 99],
    )
    ids = backbone.tokenizer(texts).int()

    def images(batch: int, _: int) -> tuple[Tensor]:
        return (torch.randn(batch, 3, backbone.size, backbone.size, generator=generator),)

    def sentences(batch: int, _: int) -> tuple[Tensor]:
        return (ids[torch.randint(len(ids), (batch,), generator=generator)],)

    for part, example in ((IMAGES, images), (TEXTS, sentences)):
        module = TOWERS[part](backbone).eval()
        yield from compare_graph(
            part.name, folder / part / GRAPH, module, example, lengths=(1,), min_scale=1.0
        )
