"""The localization that belongs to an encoder."""

from torch import Tensor, nn

from bifocal.backbones.trainable import reads_pixels
from bifocal.features import RegionBatch
from bifocal.image_encoders import BEANEncoder, MultiLevelEncoder, ProjectionEncoder, SMILEEncoder
from bifocal.localization.base import Localizer, RegionScores
from bifocal.localization.bean import AdaptedCells, BEANHeatmap
from bifocal.localization.multi_level import MultiLevelHeatmap
from bifocal.localization.per_region import PerRegionLocalizer
from bifocal.localization.smile import SMILERegions


class AutoLocalizer:
    """What the encoder's own paper localizes with.

    SMILE's regions, BEAN's heatmaps, multi-level attention, and for structure-preserving embeddings each region alone.
    """

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> RegionScores:
        """See ``bifocal.localization.base.Localizer``."""
        localizer = self.of(encoder)
        if localizer is None:
            raise ValueError(f"a {type(encoder).__name__} has no localization of its own")
        return localizer(encoder, regions, texts)

    @staticmethod
    def of(encoder: nn.Module) -> Localizer | None:
        """The localizer of ``encoder``; None if it cannot point."""
        if isinstance(encoder, SMILEEncoder):
            return SMILERegions()
        if isinstance(encoder, BEANEncoder) or (isinstance(encoder, AdaptedCells) and not reads_pixels(encoder)):
            return BEANHeatmap()
        if isinstance(encoder, MultiLevelEncoder):
            return MultiLevelHeatmap()
        if isinstance(encoder, ProjectionEncoder):
            return PerRegionLocalizer()
        return None
