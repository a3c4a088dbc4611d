"""Promises of every registered sorter: scores (..., n) -> ranks (..., n), with a gradient."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from bifocal import registry
from bifocal.sorters import exact_ranks, load_sorter, save_sorter

SORTERS = registry.registered("bifocal.sorters")
TRAINED: dict[str, dict[str, int]] = {
    "CNNSorter": {"blocks": 3},
    "LSTMLargeSorter": {"hidden": 6, "layers": 1},
    "PositionwiseLSTMSorter": {"hidden": 6, "layers": 1},
    "PublishedCNNSorter": {},
}
ANALYTIC = sorted(set(SORTERS) - set(TRAINED))
LENGTH = 40


def new_sorter(name: str) -> nn.Module:
    torch.manual_seed(0)
    sorter: nn.Module = registry.build(
        "bifocal.sorters", {"name": name, **TRAINED.get(name, {})}, length=LENGTH
    )
    return sorter.eval()


def random_scores(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("name", sorted(SORTERS))
class TestEverySorter:
    def test_builds_with_the_defaults_of_its_paper(self, name: str) -> None:
        assert isinstance(registry.build("bifocal.sorters", name), nn.Module)

    @pytest.mark.parametrize("shape", [(LENGTH,), (3, LENGTH), (2, 3, LENGTH)])
    def test_ranks_have_the_shape_of_the_scores(self, name: str, shape: tuple[int, ...]) -> None:
        assert new_sorter(name)(random_scores(*shape)).shape == shape

    def test_gives_float32_ranks_and_a_float16_gradient_for_float16_scores(self, name: str) -> None:
        scores = random_scores(3, LENGTH).half().requires_grad_()
        ranks = new_sorter(name)(scores)
        assert ranks.dtype == torch.float32
        torch.testing.assert_close(ranks, new_sorter(name)(scores.float()))
        (ranks * random_scores(3, LENGTH, seed=1)).sum().backward()
        assert scores.grad is not None
        assert scores.grad.dtype == torch.float16
        assert scores.grad.isfinite().all()

    def test_gradient_reaches_the_scores(self, name: str) -> None:
        scores = (0.3 * random_scores(3, LENGTH)).requires_grad_()
        (new_sorter(name)(scores) * random_scores(3, LENGTH, seed=1)).sum().backward()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
        assert (scores.grad.abs().sum(dim=1) > 0).all()

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_rejects_nan_and_infinite_scores(self, name: str, bad: float) -> None:
        scores = random_scores(2, LENGTH)
        scores[1, 3] = bad
        with pytest.raises(ValueError, match="1 of the 80 scores are NaN or infinite"):
            new_sorter(name)(scores)

    def test_rejects_integer_and_empty_scores(self, name: str) -> None:
        with pytest.raises(TypeError, match=r"torch\.int64"):
            new_sorter(name)(torch.arange(LENGTH))
        with pytest.raises(ValueError, match="are empty: expected"):
            new_sorter(name)(torch.empty(3, 0))

    def test_is_saved_and_loaded_with_the_same_ranks(self, name: str, tmp_path: Path) -> None:
        sorter, scores = new_sorter(name), random_scores(3, LENGTH)
        save_sorter(tmp_path, sorter, TRAINED.get(name, {}))
        torch.testing.assert_close(load_sorter(tmp_path)(scores), sorter(scores))


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_trained_sorter_rejects_other_lengths(name: str) -> None:
    with pytest.raises(ValueError, match=f"ranks {LENGTH} scores, not 9: train one with length 9"):
        new_sorter(name)(torch.rand(2, 9))


@pytest.mark.parametrize("name", ANALYTIC)
class TestEveryAnalyticSorter:
    @pytest.mark.parametrize("n", [1, 2, 3, 64])
    def test_accepts_any_number_of_scores(self, name: str, n: int) -> None:
        ranks = new_sorter(name)(100 * random_scores(4, n).cumsum(dim=1))
        assert ranks.shape == (4, n)
        assert ranks.isfinite().all()

    @given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12))
    def test_is_permutation_equivariant(self, name: str, seed: int, n: int) -> None:
        scores = random_scores(2, n, seed=seed, dtype=torch.float64)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        sorter = new_sorter(name)
        torch.testing.assert_close(sorter(scores[:, order]), sorter(scores)[:, order])

    def test_gives_rank_0_to_the_highest_score(self, name: str) -> None:
        # The gaps exceed every bandwidth, so that soft ranks equal exact ranks.
        scores = 1000 * torch.tensor([[3.0, -1.0, 8.0, 0.0]])
        torch.testing.assert_close(new_sorter(name)(scores), exact_ranks(scores), atol=1e-4, rtol=0)

    def test_gives_equal_ranks_to_equal_scores(self, name: str) -> None:
        scores = torch.tensor([[0.5, 0.2, 0.5, 0.5, -1.0, 0.2], [3.0] * 6])
        ranks = new_sorter(name)(scores)
        assert ranks.isfinite().all()
        torch.testing.assert_close(ranks[0, [0, 0]], ranks[0, [2, 3]])
        torch.testing.assert_close(ranks[0, 1], ranks[0, 5])
        torch.testing.assert_close(ranks[1], torch.full((6,), 2.5))
