"""Losses, one per file: ``loss(scores, matches) -> scalar``.

A mean over the matches is 0 for a batch without a match. Terms over all pairs keep their values.
"""

from bifocal.losses.grounding import GroundingLoss
from bifocal.losses.hardest_triplet import HardestTripletLoss
from bifocal.losses.hinge_average_precision import HingeAveragePrecisionLoss
from bifocal.losses.info_nce import InfoNCELoss
from bifocal.losses.mean_average_precision import MeanAveragePrecisionLoss
from bifocal.losses.multi_label_soft_margin import MultiLabelSoftMarginLoss
from bifocal.losses.recall import RecallLoss
from bifocal.losses.regression import RegressionLoss
from bifocal.losses.semantic_triplet import SemanticTripletLoss
from bifocal.losses.sigmoid import SigmoidLoss
from bifocal.losses.spearman import SpearmanLoss
from bifocal.losses.structure_preserving import StructurePreservingLoss
from bifocal.losses.triplet import TripletLoss
from bifocal.losses.weighted_sum import WeightedSumLoss
