"""The ranking model of every recipe has the modules that its phases name, and its losses rank its
batches."""

from pathlib import Path

import pytest
import torch

from bifocal.ranking_heads.model import build_ranking_model
from bifocal.registry import build
from bifocal.scores import Scores
from bifocal.sorters import PositionwiseLSTMSorter
from bifocal.training.optimizers import build_optimizer, check_module_names, parameter_groups
from components.catalog import configurable_components
from components.train_ranking_head.spec import TrainRankingHeadParams
from runtime.parameters import load, validate

ROOT = Path(__file__).parents[1]
RECIPES = [
    path
    for path in sorted((ROOT / "recipes").rglob("*.yaml"))
    if load(ROOT / "params.yaml", [path])["pipeline"] == "ranking_head"
]


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_phases_name_modules_of_the_model_and_losses_rank_a_batch(recipe: Path) -> None:
    values = load(ROOT / "params.yaml", [recipe])
    params = validate(values, configurable_components().values())["train_ranking_head"]
    assert isinstance(params, TrainRankingHeadParams)
    channels = 128 if params.backbone is None else 3
    with torch.device("meta"):
        model = build_ranking_model(params.head, params.backbone, input_dim=channels, labels=2)
    for phase in params.phases:
        check_module_names(model, phase.frozen_until)
        groups = parameter_groups(model, phase.learning_rate_factors)
        assert build_optimizer(params.optimizer, groups, 0.1).param_groups
    sorter = PositionwiseLSTMSorter(params.batch_size, hidden=2, layers=1)
    scores = torch.rand(2, params.batch_size, requires_grad=True)
    for ref in (params.loss, params.surrogate):
        loss = build("bifocal.losses", ref, sorter=sorter)
        loss(Scores(scores), torch.eye(2, params.batch_size, dtype=torch.bool)).backward()
    assert scores.grad is not None
    assert scores.grad.abs().sum() > 0
    # A pretrained sorter accepts batches of its length only.
    assert values["pretrain_sorter"]["length"] == params.batch_size or params.sorter is not None
