"""Pertinence of texts to images against loops over eq. (1)-(6), and the memory that it takes."""

import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils._python_dispatch import TorchDispatchMode

from bifocal.models.pertinence import best_pertinence, pertinence, sentence_from_words

Vector = list[float]


def dot(first: Vector, second: Vector) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def equations(text: Vector, levels: list[list[Vector]], unit: bool, softmax: bool) -> list[float]:
    """R_{t,l} of eq. (1)-(3), or R_{s,l} of (6a)-(6c) if not ``unit``, the attended feature being made."""
    found = []
    for cells in levels:
        here = [cell for cell in cells if any(cell)]
        similar = [dot(text, cell) for cell in here]
        if softmax:
            total = sum(math.exp(s) for s in similar)
            heat = [math.exp(s) / total for s in similar]
        else:
            heat = [max(0.0, s) for s in similar]
        attended = [sum(h * cell[k] for h, cell in zip(heat, here, strict=True)) for k in range(len(text))]
        norm = math.sqrt(dot(attended, attended)) if unit else 1.0
        found.append(dot(attended, text) / norm if norm else 0.0)
    return found


def example(seed: int, images: int, texts: int, levels: int = 3, cells: int = 5, dim: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(images, levels, cells, dim, generator=generator, dtype=torch.float64)
    said = torch.randn(texts, dim, generator=generator, dtype=torch.float64)
    vectors = normalize(vectors, dim=3)
    vectors[0, :, -2:] = 0  # an image of fewer cells
    return normalize(said, dim=1), vectors


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("size", [2, 5, 17])
def test_pertinence_is_its_equations(size: int, unit: bool, softmax: bool) -> None:
    texts, cells = example(size, size, size + 1)
    found = pertinence(texts, cells, unit=unit, softmax=softmax)
    expected = [[equations(t, v, unit, softmax) for t in texts.tolist()] for v in cells.tolist()]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))


def test_a_text_that_attends_to_nothing_has_pertinence_0_and_a_finite_gradient() -> None:
    cells = normalize(torch.tensor([[[[1.0, 0.0], [1.0, 0.1]]]]), dim=3).requires_grad_()
    found = pertinence(torch.tensor([[-1.0, 0.0]]), cells, unit=True, softmax=False)
    found.sum().backward()
    assert found.item() == 0
    assert cells.grad is not None
    assert torch.isfinite(cells.grad).all()


@pytest.mark.parametrize("level", [None, 0, 2])
def test_the_best_level_or_the_only_one(level: int | None) -> None:
    texts, cells = example(1, 3, 4)
    every = pertinence(texts, cells, unit=True, softmax=False)
    found = best_pertinence(texts, cells, unit=True, softmax=False, level=level, memory=64)
    torch.testing.assert_close(found, every.amax(dim=2) if level is None else every[:, :, level])


def test_words_make_the_sentence() -> None:
    """Eq. (5), each caption over its own words."""
    present = torch.tensor([[True, True, False], [True, True, True], [True, False, False]])
    found = torch.rand(4, 6, dtype=torch.float64)
    made = sentence_from_words(found, present, 5.0).tolist()
    for image, row in enumerate(found.tolist()):
        for caption, words in enumerate((row[0:2], row[2:5], row[5:6])):
            expected = math.log(sum(math.exp(5.0 * r) for r in words) ** (1 / 5.0))
            assert made[image][caption] == pytest.approx(expected)


def test_gradient() -> None:
    texts, cells = example(5, 2, 3)
    present = torch.tensor([[True, True], [True, False]])

    def score(t: Tensor, v: Tensor) -> Tensor:
        found = best_pertinence(t, v, unit=True, softmax=False, level=None, memory=64)
        return sentence_from_words(found, present, 5.0)

    assert torch.autograd.gradcheck(score, (texts.requires_grad_(), cells.requires_grad_()))


class LiveBytes(TorchDispatchMode):
    """The most bytes that results of operations take at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self._see(part.untyped_storage())
        return result

    def _see(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


@pytest.mark.parametrize("backward", [False, True])
def test_blocks_keep_to_the_memory_and_change_nothing(backward: bool) -> None:
    torch.manual_seed(0)
    texts = normalize(torch.randn(300, 8), dim=1).requires_grad_(backward)
    cells = normalize(torch.randn(20, 2, 64, 8), dim=3).requires_grad_(backward)
    found, peaks = {}, {}
    for memory in (2, 1000):
        with torch.set_grad_enabled(backward), LiveBytes() as live:
            value = best_pertinence(texts, cells, unit=True, softmax=False, level=None, memory=memory)
            gradients = torch.autograd.grad(value.square().sum(), (texts, cells)) if backward else ()
        found[memory], peaks[memory] = (value.detach(), *gradients), live.most
    for blocked, whole in zip(found[2], found[1000], strict=True):
        torch.testing.assert_close(blocked, whole)
    others = 4 * (20 * 2 * 64 * 64 + 4 * 20 * 300 + 3 * (texts.numel() + cells.numel()))
    assert peaks[2] < (2 << 20) + others
    assert peaks[1000] > 3 * peaks[2]
