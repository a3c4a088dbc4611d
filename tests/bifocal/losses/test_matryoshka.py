"""A loss over vectors and their first dimensions."""

import math

import pytest
import torch

from bifocal.losses import HardestTripletLoss, InfoNCELoss, MatryoshkaLoss
from bifocal.models import build_model
from bifocal.models.two_branch import TwoBranchModel
from bifocal.scores import Scores

DIMS = (2, 3)


def model(cut_dims: list[int]) -> TwoBranchModel:
    parts = {"image_encoder": "SMILEEncoder", "text_encoder": "LinearEncoder", "cut_dims": cut_dims}
    built = build_model(
        {"name": "TwoBranchModel", "dim": 5, **parts},
        feature_dim=6,
        text_dim=5,
        text_format="vectors",
    )
    assert isinstance(built, TwoBranchModel)
    return built


def cosine(first: list[float], second: list[float]) -> float:
    norms = math.sqrt(sum(x * x for x in first)) * math.sqrt(sum(x * x for x in second))
    return sum(x * y for x, y in zip(first, second, strict=True)) / norms


def test_loss_is_the_mean_over_whole_and_cut_vectors() -> None:
    """Cosines of prefixes and the hinge of the hardest negative, in loops."""
    generator = torch.Generator().manual_seed(0)
    images, captions = (
        torch.randn(4, 5, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    images, captions = (
        vectors / vectors.norm(dim=1, keepdim=True) for vectors in (images, captions)
    )
    total = 0.0
    for dim in (5, *DIMS):
        s = [[cosine(x[:dim], v[:dim]) for v in captions.tolist()] for x in images.tolist()]
        for n in range(4):
            others = [m for m in range(4) if m != n]
            total += max(max(0.0, 0.2 - s[n][n] + s[n][m]) for m in others) / 4
            total += max(max(0.0, 0.2 - s[n][n] + s[m][n]) for m in others) / 4
    trained = model(list(DIMS)).train()
    loss = MatryoshkaLoss(HardestTripletLoss(margin=0.2))(
        trained.score(images, captions), torch.eye(4) > 0
    )
    assert loss.item() == pytest.approx(total / 3)


def test_scores_are_cut_only_in_training() -> None:
    vectors = torch.eye(3, 5)
    trained = model(list(DIMS))
    assert len(trained.train().score(vectors, vectors).cut) == 2
    assert trained.eval().score(vectors, vectors).cut == ()
    half = Scores(torch.zeros(1, 1).half(), cut=(Scores(torch.zeros(1, 1).half()),)).float()
    assert half.cut[0].cross.dtype == torch.float32
    assert trained.config["model"]["cut_dims"] == list(DIMS)


def test_missing_dimensions_are_named() -> None:
    with pytest.raises(ValueError, match="give the model cut_dims"):
        MatryoshkaLoss(InfoNCELoss())(Scores(torch.eye(2)), torch.eye(2) > 0)
    with pytest.raises(ValueError, match="vectors of 5 dimensions are cut to fewer"):
        model([5])
