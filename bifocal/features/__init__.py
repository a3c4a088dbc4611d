"""Image features, one kind per file, and the store that keeps them."""

from bifocal.features.bottom_up_tsv import BottomUpTsv
from bifocal.features.grid import Grid
from bifocal.features.hypercolumns import Hypercolumns
from bifocal.features.image_arrays import ImageArrays
from bifocal.features.multi_level import MultiLevel
from bifocal.features.pixels import Pixels
from bifocal.features.precomputed import Precomputed
from bifocal.features.proposals import Proposals
from bifocal.features.regions import Regions
from bifocal.features.rmac import RMac
from bifocal.features.store import FeatureStore as FeatureStore
from bifocal.features.store import RegionBatch as RegionBatch
from bifocal.features.ten_crop import TenCrop
from bifocal.features.writer import FeatureWriter as FeatureWriter

__all__ = [
    "BottomUpTsv",
    "Grid",
    "Hypercolumns",
    "ImageArrays",
    "MultiLevel",
    "Pixels",
    "Precomputed",
    "Proposals",
    "RMac",
    "Regions",
    "TenCrop",
]
