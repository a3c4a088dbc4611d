"""Image encoders, one per file: features (B, R, D) and their mask -> embeddings (B, d)."""

from bifocal.image_encoders.projection import ProjectionEncoder
from bifocal.image_encoders.smile import SmileEncoder

__all__ = [
    "ProjectionEncoder",
    "SmileEncoder",
]
