"""Image encoders: features (B, R, D) or pixels (B, 3, H, W), and their mask ->
embeddings (B, d)."""

from bifocal.image_encoders.bean import BEANEncoder
from bifocal.image_encoders.heads import LinearEncoder, ProjectionEncoder, ResidualHead
from bifocal.image_encoders.last_layers import LastLayersEncoder
from bifocal.image_encoders.multi_level import MultiLevelEncoder
from bifocal.image_encoders.rmac import RMACEncoder
from bifocal.image_encoders.smile import SMILEEncoder
