"""Ranking heads, one per file: features (B, R, D) and their mask -> scores (B, labels)."""

from bifocal.ranking_heads.mlp import MLPHead
from bifocal.ranking_heads.wildcat import WildcatHead
