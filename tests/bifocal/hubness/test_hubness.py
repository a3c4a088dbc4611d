"""Hubness corrections against loops over their equations, and their ranks in evaluation and in
search."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from bifocal.hubness import CSLS, InvertedSoftmax
from bifocal.hubness.bank import HubnessBank
from bifocal.metrics import retrieval_ranks
from bifocal.search import Search
from bifocal.search.index.index import SearchIndex


def csls(bank: list[float], k: int) -> float:
    """Half of r(y) of eq. (3)-(4)."""
    return sum(sorted(bank, reverse=True)[:k]) / k / 2


@pytest.mark.parametrize("k", [1, 3, 10])
def test_csls_orders_as_its_equation(k: int) -> None:
    random = np.random.default_rng(k)
    bank, scores = random.uniform(-1, 1, (12, 6)), random.uniform(-1, 1, 6)
    expected = [
        2 * scores[y] - 2 * csls(bank[:, y].tolist(), k) for y in range(6)
    ]  # - r(x), equal for all y
    np.testing.assert_allclose(2 * (scores + CSLS(k).bias(bank)), expected, atol=1e-12)


def test_csls_takes_the_whole_bank_if_it_is_smaller() -> None:
    bank = np.array([[0.5, 0.1], [0.1, 0.3]])
    np.testing.assert_allclose(CSLS(k=10).bias(bank), [-0.15, -0.1])


@pytest.mark.parametrize("beta", [1.0, 20.0, 1000.0])
def test_inverted_softmax_orders_as_its_equation(beta: float) -> None:
    random = np.random.default_rng(0)
    bank, scores = random.uniform(-1, 1, (12, 6)), random.uniform(-1, 1, 6)
    corrected = scores + InvertedSoftmax(beta).bias(bank)
    for y in range(6):
        highest = max(bank[:, y])
        inverse = sum(math.exp(beta * (s - highest)) for s in bank[:, y].tolist()) / 12
        assert corrected[y] == pytest.approx(
            scores[y] - highest - math.log(inverse) / beta, abs=1e-12
        )
    if beta == 1.0:
        softmax = np.exp(scores) / np.exp(bank).sum(axis=0)
        assert np.argsort(softmax).tolist() == np.argsort(corrected).tolist()


def test_arguments_out_of_range_are_explained() -> None:
    with pytest.raises(ValueError, match="k is 0: expected 1 or more"):
        CSLS(k=0)
    with pytest.raises(ValueError, match=r"beta is 0.0: expected a positive number"):
        InvertedSoftmax(beta=0.0)


def hubs(images: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Images, two noisy captions of each, and the image of each caption; the first image is close
    to all captions."""
    generator = torch.Generator().manual_seed(seed)
    shared = 2 * torch.ones(16)
    own = torch.randn(images, 16, generator=generator)
    captions = (own + shared).repeat_interleave(2, dim=0) + torch.randn(
        2 * images, 16, generator=generator
    )
    pictures = own.clone()
    pictures[0] += 3 * shared
    halves = (normalize(vectors, dim=1).half().float() for vectors in (pictures, captions))
    return *halves, torch.arange(images).repeat_interleave(2)


@pytest.mark.parametrize("correction", ["CSLS", {"name": "InvertedSoftmax", "beta": 10.0}])
def test_search_ranks_as_the_evaluation_and_hubs_disappear(
    correction: object, tmp_path: Path
) -> None:
    _, training_captions, _ = hubs(60, seed=1)
    images, captions, image_of_caption = hubs(60, seed=2)
    HubnessBank.build(training_captions.numpy(), images.numpy(), correction).write(tmp_path)
    bank = HubnessBank.read(tmp_path)
    assert bank is not None
    biases = bank.image_bias(images.numpy()), bank.caption_bias(captions.numpy())
    tensors = torch.from_numpy(biases[0]), torch.from_numpy(biases[1])
    caption_ranks, ranks = retrieval_ranks(images, captions, image_of_caption, biases=tensors)
    index = SearchIndex.of([str(row) for row in range(60)], images.numpy(), biases[0])
    first = []
    for row, caption in enumerate(captions):
        (hits,) = Search(index).batch(caption.numpy()[None], 60, sentences=True)
        assert [hit.id for hit in hits].index(str(int(image_of_caption[row]))) == int(
            ranks.better[row]
        )
        first.append(hits[0].id)
    scores = (
        images.double() @ captions.double().T + tensors[1].double()
    )  # with biases of captions, in loops
    for row in range(60):
        own = max(
            float(scores[row, column]) for column in range(120) if image_of_caption[column] == row
        )
        assert int(caption_ranks.better[row]) == sum(
            float(value) > own + 1e-7 for value in scores[row]
        )
    without = retrieval_ranks(images, captions, image_of_caption)[1]
    assert ranks.recall(1) > without.recall(1) + 0.1
    hub = [hits[0].id for hits in Search(index).batch(captions.numpy(), 1)].count("0")
    assert first.count("0") < 0.8 * hub


def test_directory_without_a_bank_has_none(tmp_path: Path) -> None:
    assert HubnessBank.read(tmp_path) is None
