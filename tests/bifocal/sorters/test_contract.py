"""What every registered sorter promises: scores (..., n) -> ranks (..., n), with a gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bifocal import registry
from bifocal.sorters import exact_ranks, load_sorter, save_sorter

SORTERS = registry.registered("bifocal.sorters")
TRAINED = {"CNNSorter": {"blocks": 3}, "LSTMSorter": {"hidden": 6, "layers": 1}}
HANDCRAFTED = sorted(set(SORTERS) - set(TRAINED))
LENGTH = 7


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    length = {"length": LENGTH} if name in TRAINED else {}
    sorter: nn.Module = registry.build("bifocal.sorters", {"name": name, **TRAINED.get(name, {})}, **length)
    return sorter.eval()


def random_scores(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("name", sorted(SORTERS))
class TestEverySorter:
    def test_builds_with_the_defaults_of_its_paper(self, name):
        assert isinstance(registry.build("bifocal.sorters", name), nn.Module)

    @pytest.mark.parametrize("shape", [(LENGTH,), (3, LENGTH), (2, 3, LENGTH)])
    def test_ranks_have_the_shape_of_the_scores(self, name, shape):
        assert small(name)(random_scores(*shape)).shape == shape

    def test_float16_scores_get_float32_ranks_and_a_float16_gradient(self, name):
        scores = random_scores(3, LENGTH).half().requires_grad_()
        ranks = small(name)(scores)
        assert ranks.dtype == torch.float32
        torch.testing.assert_close(ranks, small(name)(scores.float()))
        (ranks * random_scores(3, LENGTH, seed=1)).sum().backward()
        assert scores.grad is not None
        assert scores.grad.dtype == torch.float16
        assert scores.grad.isfinite().all()

    def test_the_gradient_reaches_the_scores(self, name):
        scores = (0.3 * random_scores(3, LENGTH)).requires_grad_()
        (small(name)(scores) * random_scores(3, LENGTH, seed=1)).sum().backward()
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
        assert (scores.grad.abs().sum(dim=1) > 0).all()

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_what_has_no_rank_is_refused(self, name, bad):
        scores = random_scores(2, LENGTH)
        scores[1, 3] = bad
        with pytest.raises(ValueError, match="1 of the 14 scores are NaN or infinite"):
            small(name)(scores)

    def test_whole_numbers_and_nothing_are_refused(self, name):
        with pytest.raises(TypeError, match=r"torch\.int64"):
            small(name)(torch.arange(LENGTH))
        with pytest.raises(ValueError, match="nothing to rank"):
            small(name)(torch.empty(3, 0))

    def test_comes_back_from_its_folder(self, name, tmp_path):
        sorter, scores = small(name), random_scores(3, LENGTH)
        save_sorter(tmp_path, sorter, TRAINED.get(name, {}))
        torch.testing.assert_close(load_sorter(tmp_path)(scores), sorter(scores))


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_a_trained_sorter_refuses_another_length(name):
    with pytest.raises(ValueError, match=f"ranks {LENGTH} scores, not 9: train one with length: 9"):
        small(name)(torch.rand(2, 9))


@pytest.mark.parametrize("name", HANDCRAFTED)
class TestEveryHandcraftedSorter:
    @pytest.mark.parametrize("n", [1, 2, 3, 64])
    def test_ranks_any_number_of_scores(self, name, n):
        ranks = small(name)(100 * random_scores(4, n).cumsum(dim=1))
        assert ranks.shape == (4, n)
        assert ranks.isfinite().all()

    @given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12))
    @settings(max_examples=25, deadline=None)
    def test_is_permutation_equivariant(self, name, seed, n):
        scores = random_scores(2, n, seed=seed, dtype=torch.float64)
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        sorter = small(name)
        torch.testing.assert_close(sorter(scores[:, order]), sorter(scores)[:, order])

    def test_zero_is_the_highest_score(self, name):
        # Far apart for every bandwidth, so that soft ranks are the true ones.
        scores = 1000 * torch.tensor([[3.0, -1.0, 8.0, 0.0]])
        torch.testing.assert_close(small(name)(scores), exact_ranks(scores), atol=1e-4, rtol=0)

    def test_equal_scores_have_equal_ranks(self, name):
        scores = torch.tensor([[0.5, 0.2, 0.5, 0.5, -1.0, 0.2], [3.0] * 6])
        ranks = small(name)(scores)
        assert ranks.isfinite().all()
        # Relaxed permutations give equal scores equal columns, too.
        torch.testing.assert_close(ranks[0, [0, 0]], ranks[0, [2, 3]])
        torch.testing.assert_close(ranks[0, 1], ranks[0, 5])
        torch.testing.assert_close(ranks[1], torch.full((6,), 2.5))
