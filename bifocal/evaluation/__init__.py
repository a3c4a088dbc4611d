"""Evaluators, one per file: metrics, per-query ranks and report sections of a model."""

from bifocal.evaluation.baselines import Baselines
from bifocal.evaluation.compositionality import Compositionality
from bifocal.evaluation.data_quality import DataQuality
from bifocal.evaluation.object_localization import ObjectLocalization
from bifocal.evaluation.phrase_localization import PhraseLocalization
from bifocal.evaluation.pointing_game import PointingGame
from bifocal.evaluation.retrieval import Retrieval
from bifocal.evaluation.semantic_retrieval import SemanticRetrieval
from bifocal.evaluation.similar_images import SimilarImages
from bifocal.evaluation.text_modifiers import TextModifiers
