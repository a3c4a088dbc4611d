"""Feature extractors, one per file, and the readers of published features."""

from bifocal.features.extractors.bottom_up import BottomUp
from bifocal.features.extractors.grid import Grid
from bifocal.features.extractors.hypercolumns import Hypercolumns
from bifocal.features.extractors.image_files import ImageFiles
from bifocal.features.extractors.multi_level import MultiLevel
from bifocal.features.extractors.open_clip import OpenClip
from bifocal.features.extractors.pixels import Pixels
from bifocal.features.extractors.pooled_layers import PooledLayers
from bifocal.features.extractors.proposals import Proposals
from bifocal.features.extractors.regions import Regions
from bifocal.features.extractors.ten_crop import TenCrop
from bifocal.features.readers.bottom_up_tsv import BottomUpTSV
from bifocal.features.readers.image_arrays import ImageArrays
from bifocal.features.readers.precomputed_features import PrecomputedFeatures
