"""StructurePreservingLoss against loops over eq. (1)-(5)."""

import math

import pytest
import torch
from torch import Tensor

from bifocal.losses import StructurePreservingLoss
from bifocal.scores import Scores

Vectors = list[list[float]]


def distance(first: list[float], second: list[float]) -> float:
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(first, second, strict=True)))


def top_costs(costs: list[float], k: int) -> float:
    return sum(sorted((max(0.0, cost) for cost in costs), reverse=True)[:k])


def equation(
    x: Vectors,
    y: Vectors,
    matches: list[list[bool]],
    m: float,
    weights: tuple[float, float, float],
    k: int,
) -> float:
    """Eq. (5) on the vectors, with the top K costs of each positive pair; divided by the number of
    matches."""
    images, captions = range(len(x)), range(len(y))
    share_caption = [
        [any(matches[i][c] and matches[j][c] for c in captions) for j in images] for i in images
    ]
    share_image = [
        [any(matches[i][a] and matches[i][b] for i in images) for b in captions] for a in captions
    ]
    total, pairs = 0.0, 0
    for i in images:
        for j in captions:
            if matches[i][j]:
                pairs += 1
                far = [distance(x[i], y[c]) for c in captions if not matches[i][c]]
                total += top_costs([m + distance(x[i], y[j]) - d for d in far], k)
                far = [distance(x[c], y[j]) for c in images if not matches[c][j]]
                total += weights[0] * top_costs([m + distance(x[i], y[j]) - d for d in far], k)
    for vectors, neighbors, weight in (
        (x, share_caption, weights[1]),
        (y, share_image, weights[2]),
    ):
        for i in range(len(vectors)):
            for j in range(len(vectors)):
                if i != j and neighbors[i][j]:
                    far = [
                        distance(vectors[i], v)
                        for c, v in enumerate(vectors)
                        if c != i and not neighbors[i][c]
                    ]
                    total += weight * top_costs(
                        [m + distance(vectors[i], vectors[j]) - d for d in far], k
                    )
    return total / pairs


def example(images: int, captions_per_image: int, shared: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(images)
    captions = images * captions_per_image
    vectors = torch.randn(images + captions, 5, generator=generator, dtype=torch.float64)
    matches = torch.eye(images, dtype=torch.bool).repeat_interleave(captions_per_image, dim=1)
    if shared:  # caption 0 also matches the last image, as a phrase can
        matches[-1, 0] = True
    return *torch.nn.functional.normalize(vectors, dim=1).split([images, captions]), matches


def scores_of(x: Tensor, y: Tensor) -> Scores:
    return Scores(x @ y.T, x @ x.T, y @ y.T)


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize(("images", "captions_per_image"), [(2, 2), (3, 1), (6, 3), (17, 2)])
@pytest.mark.parametrize("shared", [False, True])
def test_structure_preserving_is_eq_5(
    images: int, captions_per_image: int, shared: bool, k: int
) -> None:
    x, y, matches = example(images, captions_per_image, shared)
    loss = StructurePreservingLoss(
        margin=0.3, image_weight=2.0, visual_weight=0.1, textual_weight=0.2, max_violations=k
    )
    expected = equation(x.tolist(), y.tolist(), matches.tolist(), 0.3, (2.0, 0.1, 0.2), k)
    assert expected > 0
    assert loss(scores_of(x, y), matches).item() == pytest.approx(expected)


def test_structure_preserving_gradient() -> None:
    x, y, matches = example(4, 2, shared=True)
    loss = StructurePreservingLoss(margin=0.3, visual_weight=0.1, max_violations=2)
    assert torch.autograd.gradcheck(
        lambda a, b: loss(scores_of(a, b), matches), (x.requires_grad_(), y.requires_grad_())
    )


def test_structure_preserving_has_a_finite_gradient_for_equal_captions() -> None:
    x, y, matches = example(3, 2, shared=False)
    y = y[[0, 0, 2, 3, 4, 5]].requires_grad_()
    StructurePreservingLoss(margin=2.0)(scores_of(x, y), matches).backward()
    assert y.grad is not None
    assert torch.isfinite(y.grad).all()


def test_structure_preserving_terms_are_zero_without_neighbors() -> None:
    x, y, matches = example(5, 1, shared=False)
    plain = StructurePreservingLoss(margin=0.3, textual_weight=0.0)(scores_of(x, y), matches)
    structured = StructurePreservingLoss(margin=0.3, visual_weight=0.2, textual_weight=0.2)(
        scores_of(x, y), matches
    )
    torch.testing.assert_close(plain, structured)


def test_structure_preserving_rejects_missing_scores() -> None:
    with pytest.raises(ValueError, match=r"needs scores\.textual, .* set textual_weight to 0"):
        StructurePreservingLoss()(Scores(torch.eye(2)), torch.eye(2, dtype=torch.bool))


def test_structure_terms_alone_are_what_remains_without_the_constraints_between_the_views() -> None:
    x, y, matches = example(6, 3, shared=True)
    whole, between, structure = (
        StructurePreservingLoss(margin=0.3, **weights)(scores_of(x, y), matches)
        for weights in (
            {"image_weight": 2.0, "visual_weight": 0.1, "textual_weight": 0.2},
            {"image_weight": 2.0, "visual_weight": 0.0, "textual_weight": 0.0},
            {
                "image_weight": 0.0,
                "visual_weight": 0.1,
                "textual_weight": 0.2,
                "caption_weight": 0.0,
            },
        )
    )
    assert structure > 0
    torch.testing.assert_close(between + structure, whole)
