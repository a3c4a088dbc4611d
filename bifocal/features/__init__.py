"""Image features: extractors, readers of published features, and the memory-mapped store."""

from bifocal.features.image_files import open_features
from bifocal.features.store import FeatureStore, RegionBatch
from bifocal.features.writer import FeatureWriter
