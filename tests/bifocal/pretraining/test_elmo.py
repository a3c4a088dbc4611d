"""The language model: its loss by hand, and that it learns."""

import math
from pathlib import Path

import pytest
import torch

from bifocal.pretraining.elmo import Softmax, perplexity, predictions, pretrain
from bifocal.text import Elmo
from bifocal.text.elmo.format import ElmoOptions
from bifocal.text.vectorizers import ElmoLayers

OPTIONS = ElmoOptions(symbol_dim=4, filters=((1, 4), (2, 8)), max_symbols=8, lstm_dim=16, projection_dim=8)
SENTENCES = [["the", animal, verb, "here"] for animal in ("dog", "cat") for verb in ("runs", "sits", "eats")] * 20
WORDS = ["the", "here", "dog", "cat", "runs", "sits", "eats"]


@pytest.mark.parametrize("samples", [4, 100])
def test_perplexity_falls(samples: int) -> None:
    torch.manual_seed(0)
    history = pretrain(
        Elmo(OPTIONS), SENTENCES, WORDS, seed=0, epochs=12, batch_size=16, learning_rate=0.01, samples=samples
    )
    assert len(history) == 13
    # Two animals and three verbs in five words are all that cannot be foretold; untrained, any of ten words may come.
    assert 6**0.2 < history[-1] < 2 * 6**0.2 < 5 < history[0]


def test_each_direction_predicts_its_next_word() -> None:
    torch.manual_seed(0)
    elmo, softmax = Elmo(OPTIONS).eval(), Softmax(WORDS, OPTIONS.projection_dim, samples=100)
    sentences = [["the", "dog"], ["zebra"]]
    ahead, back = predictions(elmo, softmax, sentences)
    begin, end, the, dog, other = 1, 2, 3, 5, 0
    assert sorted(ahead[1].tolist()) == sorted([the, dog, end, other, end])
    assert sorted(back[1].tolist()) == sorted([begin, the, dog, begin, other])
    alone = predictions(elmo, softmax, [["the", "dog"]])
    for (outputs, targets), expected in zip(alone, ([the, dog, end], [begin, the, dog]), strict=True):
        assert targets.tolist() == expected
        assert outputs.shape == (3, OPTIONS.projection_dim)


def test_perplexity_is_that_of_single_words() -> None:
    torch.manual_seed(0)
    elmo, softmax = Elmo(OPTIONS).eval(), Softmax(WORDS, OPTIONS.projection_dim, samples=100)
    sentences = SENTENCES[:5]
    logs = []
    for sentence in sentences:
        for outputs, targets in predictions(elmo, softmax, [sentence]):
            for output, target in zip(outputs, targets, strict=True):
                scores = (softmax.weight @ output + softmax.bias).tolist()
                logs.append(scores[target] - math.log(sum(math.exp(score) for score in scores)))
    expected = math.exp(-sum(logs) / len(logs))
    assert perplexity(elmo, softmax, sentences, batch_size=2) == pytest.approx(expected, rel=1e-4)


def test_sampled_loss_approaches_the_full_one() -> None:
    torch.manual_seed(0)
    words = [str(number) for number in range(500)]
    outputs, targets = torch.randn(50, 8), torch.randint(503, (50,))
    softmax = Softmax(words, 8, samples=400)
    full = softmax.loss(outputs, targets, None)
    sampled = torch.stack([softmax.loss(outputs, targets, torch.Generator().manual_seed(seed)) for seed in range(30)])
    assert sampled.mean().item() == pytest.approx(full.item(), rel=0.05)


def test_a_folder_without_the_two_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"must hold options\.json and one \*\.hdf5, it has 0"):
        ElmoLayers(source=tmp_path).fit([], seed=0)
