"""Evaluators, one per file: metrics, per-query ranks and report sections of a model."""

from bifocal.evaluation.compositionality.compositionality import Compositionality
from bifocal.evaluation.compositionality.sugar_crepe import SugarCrepe
from bifocal.evaluation.data_quality import DataQuality
from bifocal.evaluation.localization.backbone_pointing import BackbonePointing
from bifocal.evaluation.localization.object_localization import ObjectLocalization
from bifocal.evaluation.localization.phrase_localization import PhraseLocalization
from bifocal.evaluation.localization.pointing_game import PointingGame
from bifocal.evaluation.retrieval.baselines import Baselines
from bifocal.evaluation.retrieval.judged_retrieval import JudgedRetrieval
from bifocal.evaluation.retrieval.retrieval import Retrieval
from bifocal.evaluation.semantic.semantic_retrieval import SemanticRetrieval
from bifocal.evaluation.semantic.similar_images import SimilarImages
from bifocal.evaluation.semantic.text_modifiers import TextModifiers
