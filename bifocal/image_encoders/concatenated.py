"""Several image encoders as one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.image_encoders.base import ImageEncoder, mean_region
from bifocal.image_encoders.smile import SMILEEncoder
from bifocal.layers import join
from bifocal.localization.base import Localizer, RegionVectors
from bifocal.localization.per_region import PerRegionLocalizer
from bifocal.localization.smile import SMILERegions


class ConcatenatedImages(ImageEncoder):
    """Vectors of n encoders of one class, concatenated and divided by sqrt(n): their cosine is the
    mean cosine."""

    def __init__(self, members: Sequence[ImageEncoder]) -> None:
        first = members[0]
        super().__init__(first.input_dim, sum(member.dim for member in members))
        self.members = nn.ModuleList(members)
        self.reads_pixels, self.onnx_image_size = first.reads_pixels, first.onnx_image_size
        self.keeps_any_size = first.keeps_any_size
        self.single_vector, self.levels_per_image = first.single_vector, first.levels_per_image

    @property
    def input_shape(self) -> tuple[str | int, ...]:
        """Shape of the input, the same of every member."""
        return self._encoders[0].input_shape

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        return join([member(features, mask) for member in self._encoders])

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Return the embeddings (B, n d) of images of one size (B, 3, H, W)."""
        return join([member.embed_pixels(pixels) for member in self._encoders])

    def localizer(self) -> Localizer | None:
        """Return the members' localizer if the mean of its scores equals the joined vectors'
        score."""
        localizer = self._encoders[0].localizer()
        joins = isinstance(localizer, PerRegionLocalizer) or (
            isinstance(localizer, SMILERegions) and not localizer.attended
        )
        return localizer if joins else None

    def region_embeddings(self, features: Tensor) -> Tensor:
        """Return the regions in the joint space (B, R, n d), of unit norm, if the members are
        ``SMILEEncoder``."""
        return join(
            [
                member.region_embeddings(features)
                for member in self.members
                if isinstance(member, SMILEEncoder)
            ]
        )

    def activation_maps(self, regions: RegionBatch) -> RegionVectors:
        """Return regions (B, R, n d) before normalization, each member divided by the norm of its
        mean."""
        members: list[Any] = self._encoders
        if not hasattr(members[0], "activation_maps"):
            raise ValueError(
                f"{type(members[0]).__name__} has no activation_maps(): choose another localizer"
            )
        maps: list[RegionVectors] = [member.activation_maps(regions) for member in members]
        norms = [mean_region(each.vectors, each.mask).norm(dim=1) for each in maps]
        scaled = [
            each.vectors / norm[:, None, None] for each, norm in zip(maps, norms, strict=True)
        ]
        return maps[0]._replace(vectors=join(scaled))

    def keeps_square(self, size: int) -> bool:
        return self._encoders[0].keeps_square(size)

    @property
    def stretched_side(self) -> int | None:
        """Side in pixels of the square that evaluation stretches any image to; None if it does
        not."""
        return self._encoders[0].stretched_side

    def load_pretrained(self, directory: Path) -> None:
        """Load the weights that were stored with extracted features into every member."""
        for member in self._encoders:
            member.load_pretrained(directory)

    @property
    def _encoders(self) -> list[ImageEncoder]:
        return [member for member in self.members if isinstance(member, ImageEncoder)]
