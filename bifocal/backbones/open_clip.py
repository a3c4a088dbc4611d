"""Contrastive models of open_clip: an image tower and a text tower with one joint space."""

import logging
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, cast

import torch
from PIL import Image
from torch import Tensor

from bifocal.backbones.base import DescribedBackbone, normalize_pixels, to_pixels
from bifocal.backbones.hub import file_address
from bifocal.onnx.pixels import resize_image, resize_shorter
from bifocal.version import install

Output = Literal["projection", "tokens"]
PREPROCESSING = ("mean", "std", "interpolation", "resize_mode")
RESIZE = {"shortest": "crop", "squash": "square"}
"""How images are resized, by open_clip's name."""


class OpenClipBackbone(DescribedBackbone):
    """Both towers of a frozen open_clip model ("ViT-B-32"), random until the weights of ``tag`` are
    loaded."""

    classifier_prefix = ""

    def __init__(
        self, name: str, tag: str | None, model_arguments: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self.tag, self.model_arguments = name, tag, dict(model_arguments or {})
        library = open_clip_library()
        if library.get_model_config(name) is None:
            raise ValueError(f"open_clip has no model {name!r}: see open_clip.list_models()")
        stated = library.get_pretrained_cfg(name, tag) if tag else {}
        if tag and not stated:
            known = ", ".join(library.list_pretrained_tags_by_model(name)[:5])
            raise ValueError(f"open_clip has no weights {tag!r} of {name}; some of them: {known}")
        disabled = logging.root.manager.disable
        logging.disable(logging.WARNING)  # of random weights, which are replaced later
        try:
            device = torch.get_default_device()
            self.network = library.create_model(
                name,
                load_weights=False,
                pretrained_text=False,
                device=device,
                **self.model_arguments,
            )
        finally:
            logging.disable(disabled)
        self.network = self.network.eval().requires_grad_(False)
        config = self.network.visual.preprocess_cfg | {
            key: stated[key] for key in PREPROCESSING if key in stated
        }
        height, width = (
            config["size"] if not isinstance(config["size"], int) else 2 * (config["size"],)
        )
        if height != width or config["resize_mode"] not in RESIZE:
            raise ValueError(
                f"{name} takes images of {height} x {width} pixels, resized by "
                f"{config['resize_mode']!r}: expected a square, and one of {', '.join(RESIZE)}"
            )
        self.size = self.scaled = int(height)
        self.resize = RESIZE[config["resize_mode"]]
        self.mean, self.std = tuple(config["mean"]), tuple(config["std"])
        self.interpolation: str = config["interpolation"]

    def pretrained_state(self) -> dict[str, Tensor]:
        """Download and return the published weights of both towers."""
        if self.tag is None:
            raise ValueError("no tag names the weights")
        model = open_clip_library().create_model(
            self.name, pretrained=self.tag, **self.model_arguments
        )
        return cast(dict[str, Tensor], model.state_dict())

    def download_url(self) -> str:
        """Return where the weights are published."""
        stated = open_clip_library().get_pretrained_cfg(self.name, self.tag) if self.tag else {}
        repository = stated.get("hf_hub", "").rstrip("/")
        return file_address(repository, "open_clip_model.safetensors") if repository else "them"

    def preprocess(self, image: Image.Image) -> Tensor:
        """Resize an RGB image and return its pixels (3, H, W) uint8; with the resize "crop", before
        the crop."""
        if self.resize == "crop":
            return to_pixels(resize_shorter(image, self.size, self.interpolation))
        return to_pixels(resize_image(image, self.size, "square", self.interpolation))

    def project(self, pixels: Tensor) -> Tensor:
        """Map images (B, 3, size, size) uint8 to their vectors (B, d) in the joint space, of any
        norm."""
        return cast(Tensor, self.network.encode_image(self.normalize(pixels)))

    def token_map(self, pixels: Tensor) -> Tensor:
        """Map images (B, 3, size, size) uint8 to the last normalized tokens of their patches (B, C,
        rows, columns)."""
        outputs = self.network.visual.forward_intermediates(
            self.normalize(pixels),
            indices=1,
            normalize_intermediates=True,
            intermediates_only=True,
            output_fmt="NCHW",
        )
        return cast(Tensor, outputs["image_intermediates"][-1])

    def embed_sentences(self, sentences: Sequence[str]) -> Tensor:
        """Return the vectors (B, d) of sentences in the joint space, of any norm."""
        with torch.inference_mode():
            return cast(
                Tensor, self.network.encode_text(self.tokenizer(list(sentences)).to(self.device))
            )

    @cached_property
    def tokenizer(self) -> Any:
        """Tokenizer of the text tower."""
        return open_clip_library().get_tokenizer(self.name, context_length=self.context_length)

    @property
    def context_length(self) -> int:
        """Ids of a sentence, with padding."""
        return int(getattr(self.network, "text", self.network).context_length)

    @cached_property
    def dim(self) -> int:
        """d, numbers of a vector in the joint space."""
        stated = open_clip_library().get_model_config(self.name) | self.model_arguments
        return int(stated["embed_dim"])

    @property
    def device(self) -> torch.device:
        return cast(torch.device, next(self.network.parameters()).device)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Return pixels (B, 3, H, W) uint8 as the image tower takes them."""
        return normalize_pixels(pixels.to(self.device), self.mean, self.std)


def open_clip_library() -> Any:
    """Return the module ``open_clip``, or say how to install it."""
    try:
        import open_clip  # an extra; and it takes seconds
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"open_clip is not installed: {install('clip')}") from error
    return open_clip
