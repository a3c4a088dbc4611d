"""A run as the model, the transform and the tokenizer that CLIP_benchmark expects."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from bifocal.onnx.pixels import read_pixels
from bifocal.search.query import encode_file
from bifocal.search.trained_model import TrainedModel

Transform = Callable[[Image.Image], Tensor]
Tokenizer = Callable[[Sequence[str]], Tensor]


class ClipBenchmarkModel(nn.Module):
    """A run with ``encode_image`` of preprocessed pixels and ``encode_text`` of bytes, on a CPU."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self.model = model

    def encode_image(self, pixels: Tensor) -> Tensor:
        """Return unit vectors (N, d) of images (N, 3, H, W) uint8, see ``load_clip_benchmark``."""
        return torch.from_numpy(self.model.embedder.embed_pixels(list(pixels.numpy())))

    def encode_text(self, tokens: Tensor) -> Tensor:
        """Return unit vectors (N, d) of sentences (N, L), UTF-8 with zeros behind the end."""
        sentences = [bytes(row).rstrip(b"\0").decode() for row in tokens.numpy()]
        return torch.from_numpy(self.model.encode_text(sentences))


def load_clip_benchmark(directory: Path | str) -> tuple[ClipBenchmarkModel, Transform, Tokenizer]:
    """Return (model, transform, tokenizer) of a run folder, as the loading functions of
    CLIP_benchmark do.

    Call a metric of the package with the three, or register ``load_for_command`` for its command:
    ``clip_benchmark.models.TYPE2FUNC["bifocal"] = load_for_command``, with the folder as the name
    of the model. The exported graphs read sentences, so the tokens are the bytes of a sentence.

    Raises:
        FileNotFoundError: the folder holds no exported model.
        ValueError: the model has no graph that reads images.
    """
    model = TrainedModel(directory)
    if "image" not in model.embedder.inputs:
        raise ValueError(
            f"{directory}: no exported graph computes features from images; train on an image "
            "extractor"
        )

    def transform(image: Image.Image) -> Tensor:
        pixels = read_pixels(encode_file(image), **model.embedder.preprocessing)
        return torch.from_numpy(np.ascontiguousarray(pixels))

    def tokenizer(sentences: Sequence[str]) -> Tensor:
        rows = [torch.tensor(list(sentence.encode()), dtype=torch.uint8) for sentence in sentences]
        return pad_sequence(rows, batch_first=True)

    return ClipBenchmarkModel(model), transform, tokenizer


def load_for_command(model_name: str, **_: Any) -> tuple[ClipBenchmarkModel, Transform, Tokenizer]:
    """Return ``load_clip_benchmark`` of the folder ``model_name``, with the arguments of
    ``TYPE2FUNC``."""
    return load_clip_benchmark(model_name)
