"""Towers of a contrastive model as ONNX graphs, in the layout that Immich publishes. Needs no
torch.

``visual/model.onnx`` maps normalized pixels to a unit vector, and ``textual/model.onnx`` padded ids
of tokens to one. ``visual/preprocess_cfg.json``, ``textual/tokenizer.json``,
``textual/tokenizer_config.json`` and the ``config.json`` of open_clip describe their inputs.
"""

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bifocal.onnx.files import UnsupportedError, read_json
from bifocal.onnx.pixels import DECODED_SCALE, tried
from bifocal.onnx.sessions import Array
from bifocal.onnx.text.captions import pad_ids
from bifocal.onnx.text.tokenizer import TOKENIZER, SubwordTokenizer

IMAGES, TEXTS = Path("visual"), Path("textual")
GRAPH, CONFIG, PREPROCESSING, TOKENIZER_CONFIG = (
    "model.onnx",
    "config.json",
    "preprocess_cfg.json",
    "tokenizer_config.json",
)
GRAPHS = {"image_encoder.onnx": IMAGES / GRAPH, "text_encoder.onnx": TEXTS / GRAPH}
"""Graphs by their names in other exported models."""
CONTEXT_LENGTH = 77
"""Ids of a sentence where the configuration of the model has no number, as in open_clip."""
PUNCTUATION = str.maketrans("_", " ", string.punctuation.replace("_", ""))


def is_towers(directory: Path) -> bool:
    """Return whether a folder has this layout."""
    return (directory / IMAGES / GRAPH).is_file()


def graph_file(directory: Path, name: str) -> Path:
    """Return the file of a graph of an exported model."""
    return directory / (GRAPHS.get(name, name) if is_towers(directory) else name)


def read_preprocessing(directory: Path) -> tuple[dict[str, Any], Array, Array]:
    """Return the arguments of ``bifocal.onnx.encoders.read_pixels``, and mean and deviation (3, 1,
    1) of pixels."""
    config = read_json(directory / IMAGES / PREPROCESSING)
    height, width = config["size"] if isinstance(config["size"], list) else 2 * [config["size"]]
    mode = config.get("resize_mode", "shortest")
    if height != width or mode not in ("shortest", "squash"):
        raise UnsupportedError(
            f"{directory / IMAGES / PREPROCESSING} has the size {height} x {width} and the "
            f"resize_mode {mode!r}: expected a square, and shortest or squash"
        )
    preprocessing = {
        "size": height,
        "interpolation": config["interpolation"],
        "decoded_side": DECODED_SCALE * height,
    }
    mean, std = (
        255 * np.array(config[name], np.float32).reshape(3, 1, 1) for name in ("mean", "std")
    )
    return tried(preprocessing | ({"scaled": height} if mode == "shortest" else {})), mean, std


class TowerTokens:
    """Ids (B, context length) of sentences, cleaned as by open_clip, which also repairs wrongly
    decoded text."""

    def __init__(self, directory: Path) -> None:
        config = read_json(directory / CONFIG)["text_cfg"]
        self.length = int(config.get("context_length", CONTEXT_LENGTH))
        self.canonical = config.get("tokenizer_kwargs", {}).get("clean") == "canonicalize"
        self.tokenizer = SubwordTokenizer.read(directory / TEXTS / TOKENIZER, self.length)
        padding = read_json(directory / TEXTS / TOKENIZER_CONFIG)["pad_token"]
        token = padding["content"] if isinstance(padding, dict) else padding
        self.padding = self.tokenizer.tokenizer.token_to_id(token) or 0

    def batch(self, sentences: Sequence[str]) -> tuple[Array, ...]:
        """Return the ids of B sentences."""
        rows = self.tokenizer.encode([self._clean(sentence) for sentence in sentences])[0]
        return pad_ids(rows, self.length, self.padding)[:1]

    def _clean(self, sentence: str) -> str:
        text = sentence.translate(PUNCTUATION).lower() if self.canonical else sentence
        return " ".join(text.split())
