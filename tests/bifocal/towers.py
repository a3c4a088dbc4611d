"""Towers as ONNX as Immich writes them: by torch's previous exporter, graphs of one image and of
one sentence."""

import json
import warnings
from pathlib import Path

import open_clip
import torch
from torch import Tensor, nn


class _Tower(nn.Module):
    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model, self.method = model, method

    def forward(self, values: Tensor) -> Tensor:
        vectors: Tensor = getattr(self.model, self.method)(values, normalize=True)
        return vectors


def write_immich(weights: Path, folder: Path) -> Path:
    """Write the ONNX layout of a folder of ``tests.bifocal.contrastive``, and return it."""
    name = f"local-dir:{weights}"
    model = open_clip.create_model(name).eval().requires_grad_(False)
    config = open_clip.get_model_config(name)
    size, length = config["vision_cfg"]["image_size"], config["text_cfg"]["context_length"]
    examples = {
        "visual": torch.randn(1, 3, size, size),
        "textual": torch.ones(1, length, dtype=torch.int32),
    }
    names = {"visual": ("encode_image", "image"), "textual": ("encode_text", "text")}
    torch.backends.mha.set_fastpath_enabled(False)
    for tower, (method, value) in names.items():
        (folder / tower).mkdir(parents=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                _Tower(model, method),
                (examples[tower],),
                folder / tower / "model.onnx",
                input_names=[value],
                output_names=["embedding"],
                opset_version=17,
                dynamo=False,
            )
    torch.backends.mha.set_fastpath_enabled(True)
    (folder / "config.json").write_text(json.dumps(config))
    preprocessing = open_clip.get_model_preprocess_cfg(model)
    (folder / "visual" / "preprocess_cfg.json").write_text(json.dumps(preprocessing))
    for file in weights.glob("tokenizer*"):
        (folder / "textual" / file.name).write_bytes(file.read_bytes())
    return folder
