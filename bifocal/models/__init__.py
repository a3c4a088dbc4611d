"""Models, one per file: two encoders -> ``Scores``."""

from bifocal.models.grounding import GroundingModel
from bifocal.models.serialization import build_model, concatenate_models, load_model, save_model
from bifocal.models.two_branch import TwoBranchModel
