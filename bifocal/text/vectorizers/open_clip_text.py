"""Captions as vectors of the text tower of a contrastive model."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file

from bifocal.onnx.text.captions import EncodedCaptions, TextFormat
from bifocal.onnx.text.tokenizer import TOKENIZER
from bifocal.serialization import load_config, save_network
from bifocal.text.transformer.clip_bpe import tower_tokenizer

if TYPE_CHECKING:
    from bifocal.backbones.open_clip import OpenClipBackbone

TOWER = "text_tower"
IMAGE_TOWER = "visual."
FOLDER, DESCRIPTION = "local-dir:", "open_clip_config.json"
"""Beginning of open_clip's name of a model in a folder, and the file there that describes it."""


@dataclass
class OpenClipText:
    """Text tower of a model of open_clip, such as CLIP or SigLIP: one vector per caption in its
    joint space.

    Radford et al., "Learning transferable visual models from natural language supervision", ICML
    2021. With the extractor ``OpenClip`` of the same weights, the cosine with the image's
    projection is the zero-shot score. Needs the extra ``clip``. The text holds a copy of the tower,
    and of the files that describe a model in a folder. Exported models contain the tower, and need
    no torch.

    Args:
        batch_size: captions per batch.
        model: name of the model.
        tag: tag of its published weights, which are downloaded without ``path``.
        path: safetensors file with the weights of both towers, in open_clip's layout.
        model_arguments: further keyword arguments of ``open_clip.create_model``.

    Attributes:
        weights: SHA-256 of the weights of both towers.

    Example:
        >>> OpenClipText(model="ViT-B-16", tag="openai").model
        'ViT-B-16'
    """

    batch_size: int = 64
    model: str = "ViT-B-32"
    tag: str | None = "laion2b_s34b_b79k"
    path: Path | str | None = None
    model_arguments: dict[str, Any] | None = None
    weights: str = field(init=False, repr=False)
    dim: int = field(init=False, repr=False)
    backbone: "OpenClipBackbone" = field(init=False, repr=False)

    @property
    def format(self) -> TextFormat:
        """Vectors with the dimension of the joint space."""
        return TextFormat("vectors", self.dim)

    def fit(
        self, captions: Sequence[str], seed: int, checkpoints: Path | None = None
    ) -> dict[str, float]:
        """Load the weights; the captions are not used."""
        from bifocal.backbones.state import (
            load_library_weights,
            load_weights_file,
        )  # import torch, which takes seconds

        self._build(self.model)
        if self.path is None:
            self.weights = load_library_weights(self.backbone)
        else:
            self.weights = load_weights_file(self.backbone, Path(self.path))
        return {"dim": self.dim}

    def transform(self, captions: Sequence[str]) -> EncodedCaptions:
        starts = range(0, len(captions), self.batch_size)
        batches = [
            self.backbone.embed_sentences(captions[start : start + self.batch_size])
            for start in starts
        ]
        return EncodedCaptions(
            [vector for batch in batches for vector in batch.float().cpu().numpy()]
        )

    def save(self, directory: Path) -> None:
        """Write the tower, the digest of the weights, the tokenizer, and what describes a model in
        a folder."""
        state = self.backbone.network.state_dict()
        tower = {name: tensor for name, tensor in state.items() if not name.startswith(IMAGE_TOWER)}
        (directory / TOWER).mkdir(exist_ok=True)
        save_network(directory / TOWER, {"weights": self.weights}, tower)
        tokenizer = tower_tokenizer(self.backbone.tokenizer, self.backbone.context_length)
        if tokenizer is not None:
            tokenizer.save(str(directory / TOKENIZER))
        if self.backbone.name.startswith(FOLDER):
            shutil.copy(
                Path(self.backbone.name.removeprefix(FOLDER)) / DESCRIPTION, directory / TOWER
            )
            if hasattr(self.backbone.tokenizer, "save_pretrained"):
                self.backbone.tokenizer.save_pretrained(str(directory / TOWER))

    def load(self, directory: Path) -> None:
        # The folder of the training may be on another machine.
        self._build(
            f"{FOLDER}{directory / TOWER}"
            if (directory / TOWER / DESCRIPTION).is_file()
            else self.model
        )
        self.weights = load_config(directory / TOWER, "text tower")["weights"]
        self.backbone.network.load_state_dict(
            load_file(directory / TOWER / "model.safetensors"), strict=False
        )

    def _build(self, model: str) -> None:
        from bifocal.backbones.open_clip import (
            OpenClipBackbone,
        )  # imports torch, which takes seconds

        self.backbone = OpenClipBackbone(model, self.tag, self.model_arguments)
        self.dim = self.backbone.dim
