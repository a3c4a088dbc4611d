"""Models: encoders -> Scores."""

from bifocal.models.files import build_two_branch, load_model, save_model
from bifocal.models.two_branch import TwoBranchModel

__all__ = ["TwoBranchModel", "build_two_branch", "load_model", "save_model"]
