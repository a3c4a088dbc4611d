"""Pertinence of texts to images: loops over eq. (1)-(6) as reference, and peak memory."""

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
    """R_{t,l} of eq. (1)-(3), or R_{s,l} of (6a)-(6c) if not ``unit``, from the attended feature."""
    pertinences = []
    for cells in levels:
        present = [cell for cell in cells if any(cell)]
        cosines = [dot(text, cell) for cell in present]
        if softmax:
            total = sum(math.exp(s) for s in cosines)
            heat = [math.exp(s) / total for s in cosines]
        else:
            heat = [max(0.0, s) for s in cosines]
        attended = [sum(h * cell[k] for h, cell in zip(heat, present, strict=True)) for k in range(len(text))]
        norm = math.sqrt(dot(attended, attended)) if unit else 1.0
        pertinences.append(dot(attended, text) / norm if norm else 0.0)
    return pertinences


def example(seed: int, images: int, texts: int, levels: int = 3, cells: int = 5, dim: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(images, levels, cells, dim, generator=generator, dtype=torch.float64)
    sentences = torch.randn(texts, dim, generator=generator, dtype=torch.float64)
    vectors = normalize(vectors, dim=3)
    vectors[0, :, -2:] = 0  # this image has fewer cells
    return normalize(sentences, dim=1), vectors


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("size", [2, 5, 17])
def test_pertinence_equals_equations(size: int, unit: bool, softmax: bool) -> None:
    texts, cells = example(size, size, size + 1)
    actual = pertinence(texts, cells, unit=unit, softmax=softmax)
    expected = [[equations(t, v, unit, softmax) for t in texts.tolist()] for v in cells.tolist()]
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64))


def test_pertinence_without_attention_is_0_with_finite_gradient() -> None:
    cells = normalize(torch.tensor([[[[1.0, 0.0], [1.0, 0.1]]]]), dim=3).requires_grad_()
    actual = pertinence(torch.tensor([[-1.0, 0.0]]), cells, unit=True, softmax=False)
    actual.sum().backward()
    assert actual.item() == 0
    assert cells.grad is not None
    assert torch.isfinite(cells.grad).all()


@pytest.mark.parametrize("level", [None, 0, 2])
def test_best_pertinence_uses_best_or_given_level(level: int | None) -> None:
    texts, cells = example(1, 3, 4)
    by_level = pertinence(texts, cells, unit=True, softmax=False)
    actual = best_pertinence(texts, cells, unit=True, softmax=False, level=level, memory=64)
    torch.testing.assert_close(actual, by_level.amax(dim=2) if level is None else by_level[:, :, level])


def test_sentence_from_words_equals_equation_5() -> None:
    """Three captions of two, three and one words."""
    present = torch.tensor([[True, True, False], [True, True, True], [True, False, False]])
    pertinences = torch.rand(4, 6, dtype=torch.float64)
    actual = sentence_from_words(pertinences, present, 5.0).tolist()
    for image, row in enumerate(pertinences.tolist()):
        for caption, words in enumerate((row[0:2], row[2:5], row[5:6])):
            expected = math.log(sum(math.exp(5.0 * r) for r in words) ** (1 / 5.0))
            assert actual[image][caption] == pytest.approx(expected)


def test_sentence_from_words_passes_gradcheck() -> None:
    texts, cells = example(5, 2, 3)
    present = torch.tensor([[True, True], [True, False]])

    def score(t: Tensor, v: Tensor) -> Tensor:
        pertinences = best_pertinence(t, v, unit=True, softmax=False, level=None, memory=64)
        return sentence_from_words(pertinences, present, 5.0)

    assert torch.autograd.gradcheck(score, (texts.requires_grad_(), cells.requires_grad_()))


class LiveBytes(TorchDispatchMode):
    """Peak memory, in bytes, of the live results of operations."""

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else (result,):
            if isinstance(part, Tensor):
                self._add(part.untyped_storage())
        return result

    def _add(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.current += size
            self.peak = max(self.peak, self.current)
            weakref.finalize(storage, self._remove, key, size)

    def _remove(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.current -= size


@pytest.mark.parametrize("backward", [False, True])
def test_blocks_bound_memory_and_keep_values_and_gradients(backward: bool) -> None:
    torch.manual_seed(0)
    texts = normalize(torch.randn(300, 8), dim=1).requires_grad_(backward)
    cells = normalize(torch.randn(20, 2, 64, 8), dim=3).requires_grad_(backward)
    results, peaks = {}, {}
    for memory in (2, 1000):
        with torch.set_grad_enabled(backward), LiveBytes() as live:
            value = best_pertinence(texts, cells, unit=True, softmax=False, level=None, memory=memory)
            gradients = torch.autograd.grad(value.square().sum(), (texts, cells)) if backward else ()
        results[memory], peaks[memory] = (value.detach(), *gradients), live.peak
    for blocked, whole in zip(results[2], results[1000], strict=True):
        torch.testing.assert_close(blocked, whole)
    others = 4 * (20 * 2 * 64 * 64 + 4 * 20 * 300 + 3 * (texts.numel() + cells.numel()))
    assert peaks[2] < (2 << 20) + others
    assert peaks[1000] > 3 * peaks[2]
