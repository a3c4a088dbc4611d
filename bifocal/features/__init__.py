"""Image features and the memory-mapped store that holds them."""

from bifocal.features.store import FeatureStore, RegionBatch
from bifocal.features.writer import FeatureWriter
