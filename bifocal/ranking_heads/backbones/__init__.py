"""Backbones of ranking heads, one per file: pixels or stored features -> features (B, R, D) and
their mask."""

from bifocal.ranking_heads.backbones.cells import CellBackbone
from bifocal.ranking_heads.backbones.encoder import EncoderBackbone
