"""The language model of ELMo: loss, perplexity, learning and resume."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bifocal.text import Elmo
from bifocal.text.elmo import ElmoOptions
from bifocal.text.vectorizers import ElmoLayers
from bifocal.training.pretraining import elmo as pretraining
from bifocal.training.pretraining.elmo import SampledSoftmax, perplexity, predictions, pretrain_elmo

Interrupt = Callable[[int], Callable[[], None]]
OPTIONS = ElmoOptions(
    symbol_dim=4, filters=((1, 4), (2, 8)), max_symbols=8, lstm_dim=16, projection_dim=8
)
SENTENCES = [
    ["the", animal, verb, "here"] for animal in ("dog", "cat") for verb in ("runs", "sits", "eats")
] * 20
WORDS = ["the", "here", "dog", "cat", "runs", "sits", "eats"]


def train(checkpoints: Path, **changes: Any) -> tuple[Elmo, list[float]]:
    torch.manual_seed(1)
    elmo = Elmo(OPTIONS)
    arguments: dict[str, Any] = {
        "epochs": 12,
        "batch_size": 16,
        "learning_rate": 0.01,
        "samples": 4,
        "seed": 1,
    }
    return elmo, pretrain_elmo(
        elmo, SENTENCES, WORDS, checkpoints=checkpoints, **arguments | changes
    )


@pytest.mark.parametrize("samples", [4, 100])
def test_pretrain_elmo_lowers_the_perplexity(tmp_path: Path, samples: int) -> None:
    elmo, history = train(tmp_path, samples=samples)
    assert len(history) == 13
    assert not elmo.training
    # Two animals and three verbs in five words are all that cannot be predicted.
    assert 6**0.2 < history[-1] < history[0] / 2


@pytest.mark.slow
def test_pretrain_elmo_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill_at: Interrupt, sigterm_at: Interrupt
) -> None:
    expected, history = train(tmp_path / "whole", epochs=3)
    draw = pretraining.predictions
    for name, tick in {"killed": kill_at(20), "terminated": sigterm_at(20)}.items():
        with monkeypatch.context() as patch:
            patch.setattr(
                pretraining,
                "predictions",
                lambda *arguments, tick=tick: (tick(), draw(*arguments))[1],
            )
            with pytest.raises((KeyboardInterrupt, SystemExit)):
                train(tmp_path / name, epochs=3)
        resumed, again = train(tmp_path / name, epochs=3)
        assert again == history
        for key, tensor in expected.state_dict().items():
            assert torch.equal(resumed.state_dict()[key], tensor)


def test_each_direction_predicts_its_next_word() -> None:
    torch.manual_seed(0)
    elmo, softmax = Elmo(OPTIONS).eval(), SampledSoftmax(WORDS, OPTIONS.projection_dim, samples=100)
    sentences = [["the", "dog"], ["zebra"]]
    ahead, back = predictions(elmo, softmax, sentences)
    begin, end, the, dog, other = 1, 2, 3, 5, 0
    assert sorted(ahead[1].tolist()) == sorted([the, dog, end, other, end])
    assert sorted(back[1].tolist()) == sorted([begin, the, dog, begin, other])
    alone = predictions(elmo, softmax, [["the", "dog"]])
    for (outputs, targets), expected in zip(
        alone, ([the, dog, end], [begin, the, dog]), strict=True
    ):
        assert targets.tolist() == expected
        assert outputs.shape == (3, OPTIONS.projection_dim)


def test_perplexity_is_the_mean_over_single_words() -> None:
    torch.manual_seed(0)
    elmo, softmax = Elmo(OPTIONS).eval(), SampledSoftmax(WORDS, OPTIONS.projection_dim, samples=100)
    sentences = SENTENCES[:5]
    logs = []
    for sentence in sentences:
        for outputs, targets in predictions(elmo, softmax, [sentence]):
            for output, target in zip(outputs, targets, strict=True):
                scores = (softmax.weight @ output + softmax.bias).tolist()
                logs.append(scores[target] - math.log(sum(math.exp(score) for score in scores)))
    expected = math.exp(-sum(logs) / len(logs))
    assert perplexity(elmo, softmax, sentences, batch_size=2) == pytest.approx(expected, rel=1e-4)


def test_sampled_softmax_approaches_the_full_softmax() -> None:
    torch.manual_seed(0)
    words = [str(number) for number in range(500)]
    outputs, targets = torch.randn(50, 8), torch.randint(503, (50,))
    softmax = SampledSoftmax(words, 8, samples=400)
    full = softmax.loss(outputs, targets, None)
    sampled = torch.stack(
        [softmax.loss(outputs, targets, torch.Generator().manual_seed(seed)) for seed in range(30)]
    )
    assert sampled.mean().item() == pytest.approx(full.item(), rel=0.05)


def test_elmo_layers_names_a_folder_without_the_two_files(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"must contain options\.json and one \*\.hdf5; it has 0"
    ):
        ElmoLayers(path=tmp_path).fit([], seed=0)
