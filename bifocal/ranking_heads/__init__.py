"""Ranking heads, one per file: features (B, R, D) and their mask -> scores (B, labels)."""

from bifocal.ranking_heads.files import load_head as load_head
from bifocal.ranking_heads.files import save_head as save_head
from bifocal.ranking_heads.labelled import LabelledImages as LabelledImages
from bifocal.ranking_heads.labelled import Measure as Measure
from bifocal.ranking_heads.labelled import judge as judge
from bifocal.ranking_heads.labelled import measure as measure
from bifocal.ranking_heads.mlp import MlpHead
from bifocal.ranking_heads.training import fit_head as fit_head
from bifocal.ranking_heads.training import predict as predict
from bifocal.ranking_heads.wildcat import WildcatHead

__all__ = [
    "MlpHead",
    "WildcatHead",
]
