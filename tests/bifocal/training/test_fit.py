"""The training loop on a small collection with real stores."""

import json
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal.batch import Batch, ImageCaptionPairs
from bifocal.embedding import embed
from bifocal.losses import RecallLoss, TripletLoss
from bifocal.metrics import Ranks, retrieval_ranks
from bifocal.models import TwoBranchModel
from bifocal.scores import Scores
from bifocal.sorters import LSTMSorter
from bifocal.training.batches.distinct_images import distinct_batches
from bifocal.training.schedules import Constant, MultiStep

Kill = Callable[[int], Callable[[], None]]


def same(first: nn.Module, second: nn.Module) -> bool:
    """Bit for bit."""
    others = second.state_dict()
    return all(torch.equal(others[name], tensor) for name, tensor in first.state_dict().items())


class Interrupted(nn.Module):
    """A loss that calls ``tick`` first."""

    def __init__(self, tick: Callable[[], None], loss: nn.Module) -> None:
        super().__init__()
        self.tick, self.loss = tick, loss

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        self.tick()
        value: Tensor = self.loss(scores, matches)
        return value


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns(pairs: ImageCaptionPairs, train: Any, checkpoints: Path, precision: str) -> None:
    model, history = train(checkpoints, epochs=20, schedule=Constant(), precision=precision)
    by_captions, by_images = retrieval_ranks(*embed(model, pairs), pairs.image_of_caption)
    assert min(by_captions.recall(1), by_images.recall(1)) > 0.7  # chance: 0.025
    assert max(row["recall_sum"] for row in history) == pytest.approx(
        100 * sum(found.recall(k) for found in (by_captions, by_images) for k in (1, 5, 10))
    )


def rank_loss() -> RecallLoss:
    """With all that has a state: a sorter that is fine-tuned, and an alignment that ends in the second epoch."""
    torch.manual_seed(8)
    sorter = LSTMSorter(16, hidden=3, layers=1)
    return RecallLoss(sorter, fine_tune=0.5, auxiliary_weight=1.0, auxiliary_steps=8)


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        *((steps, {}) for steps in (1, 2, 3, 6, 11)),
        (8, {"ema_decay": 0.9}),
        (9, {"micro_batch_size": 7}),
        (7, {"optimizer": {"name": "SGD", "momentum": 0.9, "weight_decay": 0.0005}, "schedule": MultiStep([1.5], 0.5)}),
    ],
)
def test_a_killed_run_ends_with_the_same_bits(
    train: Any, tmp_path: Path, kill_at: Kill, steps: int, changes: dict[str, Any]
) -> None:
    expected, history = train(tmp_path / "undisturbed", Interrupted(lambda: None, TripletLoss()), **changes)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", Interrupted(kill_at(steps), TripletLoss()), **changes)
    torch.manual_seed(99)
    found, again = train(tmp_path / "killed", Interrupted(lambda: None, TripletLoss()), **changes)
    assert again == history
    assert same(expected, found)


def test_a_loss_with_a_sorter_is_trained_and_kept(
    pairs: ImageCaptionPairs, train: Any, tmp_path: Path, kill_at: Kill
) -> None:
    changes = {"sampler": partial(distinct_batches, pairs.image_of_caption, 16, 3)}
    losses = [Interrupted(tick, rank_loss()) for tick in (lambda: None, kill_at(7), lambda: None)]
    expected, history = train(tmp_path / "undisturbed", losses[0], **changes)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", losses[1], **changes)
    found, again = train(tmp_path / "killed", losses[2], **changes)
    assert again == history
    assert same(expected, found)
    assert same(losses[0], losses[2])
    start, trained = rank_loss(), losses[0].loss
    assert isinstance(trained, RecallLoss)
    assert int(trained.auxiliary_loss.steps_done) == 15
    moved = [
        not torch.equal(a, b)
        for a, b in zip(start.sorter_ranks.parameters(), trained.sorter_ranks.parameters(), strict=True)
    ]
    assert all(moved)
    assert not trained.training


@pytest.mark.parametrize("step", [1, 4, 5, 15])
def test_sigterm_saves_and_the_next_run_goes_on(train: Any, tmp_path: Path, kill_at: Kill, step: int) -> None:
    calls = iter(range(1, 100))
    seen: list[int] = []

    def tick() -> None:
        seen.append(next(calls))
        if seen[-1] == step:
            os.kill(os.getpid(), signal.SIGTERM)

    former = signal.getsignal(signal.SIGTERM)
    expected, history = train(tmp_path / "undisturbed", Interrupted(lambda: None, TripletLoss()))
    with pytest.raises(SystemExit) as ended:
        train(tmp_path / "terminated", Interrupted(tick, TripletLoss()), checkpoint_every_steps=1000)
    assert ended.value.code == 143
    assert seen[-1] == step
    assert signal.getsignal(signal.SIGTERM) is former
    found, again = train(tmp_path / "terminated", Interrupted(tick, TripletLoss()), checkpoint_every_steps=1000)
    assert seen == list(range(1, 16))  # no step was lost, none was made twice
    assert again == history
    assert same(expected, found)


def test_the_batches_of_an_epoch_are_kept(pairs: ImageCaptionPairs, train: Any, tmp_path: Path, kill_at: Kill) -> None:
    asked: list[int] = []

    def mined(epoch: int) -> list[Tensor]:
        asked.append(epoch)
        return list(torch.randperm(len(pairs)).split(16))  # other ones each time, as from a model that moves

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", Interrupted(kill_at(8), TripletLoss()), sampler=mined)
    train(tmp_path / "run", Interrupted(lambda: None, TripletLoss()), sampler=mined)
    assert asked == [0, 1, 2]


def test_a_loss_that_is_no_number_stops_with_its_state(pairs: ImageCaptionPairs, train: Any, checkpoints: Path) -> None:
    class Broken(nn.Module):
        def forward(self, scores: Scores, matches: Tensor) -> Tensor:
            return scores.cross.sum() * torch.nan

    with pytest.raises(FloatingPointError, match="the loss is nan at epoch 1, step 0"):
        train(checkpoints, Broken())
    notes = json.loads((checkpoints / "nonfinite_loss.json").read_text())
    assert set(notes["images"]) <= set(pairs.image_ids)
    assert (checkpoints / "nonfinite_loss.safetensors").is_file()


def test_any_model_that_gives_scores_can_be_trained(
    pairs: ImageCaptionPairs, train: Any, new_model: Callable[[], TwoBranchModel], checkpoints: Path
) -> None:
    class Inner(nn.Module):
        """Scores of a model that shows no embeddings, and ranks by itself."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden = new_model()

        def forward(self, batch: Batch) -> Scores:
            return Scores(self.hidden(batch).cross)

    class Ranking(Inner):
        def retrieval_ranks(self, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
            return retrieval_ranks(*embed(self.hidden, pairs), pairs.image_of_caption)

    found, history = train(checkpoints / "ranking", model=Ranking())
    expected, plain = train(checkpoints / "plain")
    assert history == plain
    assert same(expected, found.hidden)
    with pytest.raises(TypeError, match=r"Inner cannot be validated: give it .* or retrieval_ranks"):
        train(checkpoints / "inner", model=Inner())
    with pytest.raises(TypeError, match="micro-batches and several processes need a model with"):
        train(checkpoints / "apart", model=Ranking(), micro_batch_size=4)
