"""The image encoder of an embedding, below a ranking head."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from bifocal.backbones.state import load_into
from bifocal.features import FeatureStore
from bifocal.image_encoders.base import ImageEncoder
from bifocal.models import load_model
from bifocal.models.inputs import check_features
from bifocal.ranking_heads.backbones.base import RankingBackbone


class EncoderBackbone(RankingBackbone):
    """The image encoder of an embedding; the one region of an image is its embedding.

    Thesis 5.5.1 predicts memorability from the visual path of BEAN, table 5.2. ``load_embedding``
    starts from the weights of a trained embedding.

    Args:
        encoder: an image encoder with one vector per image; its argument ``dim`` is the
            embedding's.

    Example:
        >>> import torch
        >>> from bifocal.image_encoders import SMILEEncoder
        >>> backbone = EncoderBackbone(SMILEEncoder(input_dim=6, dim=4))
        >>> features, mask = backbone(torch.rand(2, 5, 6), torch.ones(2, 5, dtype=torch.bool))
        >>> features.shape, mask.shape
        (torch.Size([2, 1, 4]), torch.Size([2, 1]))
    """

    parts: ClassVar[Mapping[str, str]] = {"encoder": "bifocal.image_encoders"}

    def __init__(self, encoder: ImageEncoder) -> None:
        if not encoder.single_vector:
            raise ValueError(
                f"EncoderBackbone needs one vector per image, a {type(encoder).__name__} gives "
                "several"
            )
        super().__init__(encoder.dim)
        self.encoder, self.reads_pixels = encoder, encoder.reads_pixels

    def forward(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(inputs, mask).unsqueeze(1)
        return features, mask.new_ones(features.shape[:2])

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        return self.encoder.input_shape

    def keeps_square(self, size: int) -> bool:
        return self.encoder.keeps_square(size)

    @property
    def stretched_side(self) -> int | None:
        return self.encoder.stretched_side

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        return self.encoder.embed_pixels(pixels).unsqueeze(1)

    def load_pretrained(self, directory: Path) -> None:
        self.encoder.load_pretrained(directory)

    def load_embedding(self, directory: Path, features: FeatureStore) -> None:
        """Load the weights of the image encoder of another run's ``embedding``, trained with the
        same features."""
        source = load_model(directory)
        check_features(source, features)
        load_into(self.encoder, source.image_encoder.state_dict(), directory)
