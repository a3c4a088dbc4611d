"""Models, one per file: encoders -> Scores."""

from bifocal.models.files import Model as Model
from bifocal.models.files import build_model, load_model, save_model
from bifocal.models.grounding import GroundingModel
from bifocal.models.two_branch import TwoBranchModel

__all__ = ["GroundingModel", "TwoBranchModel", "build_model", "load_model", "save_model"]
