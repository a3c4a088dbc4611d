"""The localization that belongs to an encoder."""

from torch import Tensor, nn

from bifocal.features import RegionBatch
from bifocal.image_encoders import BeanEncoder, MultiLevelEncoder, ProjectionEncoder, SmileEncoder
from bifocal.image_encoders.pixels import reads_pixels
from bifocal.localization.alone import RegionsAlone
from bifocal.localization.base import Localizer, Located
from bifocal.localization.bean import AdaptedCells, BeanHeatmap
from bifocal.localization.multi_level import MultiLevelHeatmap
from bifocal.localization.smile import SmileRegions


class OwnLocalizer:
    """What the encoder's own paper localizes with.

    SMILE's regions, BEAN's heatmaps, multi-level attention, and for structure-preserving embeddings each region alone.
    """

    def __call__(self, encoder: nn.Module, regions: RegionBatch, texts: Tensor) -> Located:
        """See ``bifocal.localization.base.Localizer``."""
        localizer = self.of(encoder)
        if localizer is None:
            raise ValueError(f"a {type(encoder).__name__} has no localization of its own")
        return localizer(encoder, regions, texts)

    @staticmethod
    def of(encoder: nn.Module) -> Localizer | None:
        """The localizer of ``encoder``; None if it cannot point."""
        if isinstance(encoder, SmileEncoder):
            return SmileRegions()
        if isinstance(encoder, BeanEncoder) or (isinstance(encoder, AdaptedCells) and not reads_pixels(encoder)):
            return BeanHeatmap()
        if isinstance(encoder, MultiLevelEncoder):
            return MultiLevelHeatmap()
        if isinstance(encoder, ProjectionEncoder):
            return RegionsAlone()
        return None
