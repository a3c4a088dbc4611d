"""fit on a small collection with real stores."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bifocal.losses import InfoNCELoss, RecallLoss, TripletLoss
from bifocal.metrics import Ranks, retrieval_ranks
from bifocal.models import TwoBranchModel
from bifocal.models.batch import Batch, ImageCaptionPairs, embed
from bifocal.scores import Scores
from bifocal.sorters import PositionwiseLSTMSorter
from bifocal.training.batches.captions import distinct_batches
from bifocal.training.schedules import Constant, MultiStep
from tests.bifocal.training.interrupted import Interrupted
from tests.margins import beyond_chance

Interrupt = Callable[[int], Callable[[], None]]


def equal_weights(first: nn.Module, second: nn.Module) -> bool:
    """Whether two modules are equal bit for bit."""
    state = second.state_dict()
    return all(torch.equal(state[name], tensor) for name, tensor in first.state_dict().items())


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_fit_learns(
    pairs: ImageCaptionPairs, train: Any, checkpoints: Path, precision: str
) -> None:
    model, history = train(checkpoints, epochs=12, schedule=Constant(), precision=precision)
    ranks = retrieval_ranks(*embed(model, pairs), pairs.image_of_caption)
    assert min(direction.recall(1) for direction in ranks) > beyond_chance(40, 1 / 40)
    assert max(row["recall_sum"] for row in history) == pytest.approx(
        100 * sum(direction.recall(k) for direction in ranks for k in (1, 5, 10))
    )


def rank_loss() -> RecallLoss:
    """Return a loss with state: a sorter that is fine-tuned and an auxiliary loss that ends in the
    second epoch."""
    torch.manual_seed(8)
    sorter = PositionwiseLSTMSorter(16, hidden=3, layers=1)
    return RecallLoss(sorter, fine_tune=0.5, auxiliary_weight=1.0, auxiliary_steps=8)


@pytest.mark.parametrize(
    ("steps", "changes"),
    [
        *((steps, {}) for steps in (1, 2, 3, 6, 11)),
        (8, {"ema_decay": 0.9}),
        (9, {"micro_batch_size": 7}),
        (4, {"learning_rate_factors": {"text_encoder": 0.1}}),
        (
            7,
            {
                "optimizer": {"name": "SGD", "momentum": 0.9, "weight_decay": 0.0005},
                "schedule": MultiStep([1.5], 0.5),
            },
        ),
    ],
)
def test_killed_run_resumes_bit_for_bit(
    train: Any, tmp_path: Path, kill_at: Interrupt, steps: int, changes: dict[str, Any]
) -> None:
    expected, history = train(
        tmp_path / "whole", Interrupted(lambda: None, TripletLoss()), **changes
    )
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", Interrupted(kill_at(steps), TripletLoss()), **changes)
    torch.manual_seed(99)
    resumed, again = train(tmp_path / "killed", Interrupted(lambda: None, TripletLoss()), **changes)
    assert again == history
    assert equal_weights(expected, resumed)


def test_first_step_of_a_module_is_multiplied_by_its_factor(
    train: Any, new_model: Any, tmp_path: Path
) -> None:
    options = {
        "epochs": 1,
        "optimizer": "SGD",
        "max_grad_norm": None,
        "ema_decay": 0.0,
        "schedule": Constant(),
    }
    start = {name: tensor.clone() for name, tensor in new_model().state_dict().items()}

    def one_batch(epoch: int) -> list[Tensor]:
        return [torch.arange(16)]

    def one_step(folder: str, factors: dict[str, float]) -> dict[str, Tensor]:
        model, _ = train(
            tmp_path / folder, sampler=one_batch, learning_rate_factors=factors, **options
        )
        return {name: tensor - start[name] for name, tensor in model.state_dict().items()}

    plain, scaled = (
        one_step("plain", {}),
        one_step("scaled", {"text_encoder": 0.25, "text_encoder.layers.0": 2.0}),
    )
    for name, change in plain.items():
        factor = (
            2.0
            if name.startswith("text_encoder.layers.0.")
            else 0.25
            if name.startswith("text_encoder.")
            else 1.0
        )
        torch.testing.assert_close(scaled[name], factor * change, atol=1e-7, rtol=1e-4)
    assert any(
        change.any() for name, change in plain.items() if name.startswith("text_encoder.layers.0.")
    )


def test_weight_decay_of_biases_is_optional(train: Any, new_model: Any, tmp_path: Path) -> None:
    options = {
        "epochs": 1,
        "max_grad_norm": None,
        "ema_decay": 0.0,
        "schedule": Constant(),
        "learning_rate": 0.1,
    }
    start = {name: tensor.clone() for name, tensor in new_model().state_dict().items()}

    def one_step(folder: str, decay: float, decay_biases: bool) -> dict[str, Tensor]:
        optimizer = {"name": "SGD", "weight_decay": decay}
        model, _ = train(
            tmp_path / folder,
            sampler=lambda epoch: [torch.arange(16)],
            optimizer=optimizer,
            decay_biases=decay_biases,
            **options,
        )
        return model.state_dict()

    plain, all_decay, matrices = (
        one_step(*case) for case in (("0", 0.0, True), ("1", 0.5, True), ("2", 0.5, False))
    )
    assert {tensor.ndim for tensor in start.values()} >= {1, 2}
    for name, tensor in plain.items():
        decayed = tensor - 0.1 * 0.5 * start[name]
        torch.testing.assert_close(all_decay[name], decayed)
        torch.testing.assert_close(matrices[name], decayed if tensor.ndim > 1 else tensor)


def test_loss_with_a_sorter_is_trained_and_saved(
    pairs: ImageCaptionPairs, train: Any, tmp_path: Path, kill_at: Interrupt
) -> None:
    changes = {"sampler": partial(distinct_batches, pairs.image_of_caption, 16, 3)}
    losses = [Interrupted(tick, rank_loss()) for tick in (lambda: None, kill_at(7), lambda: None)]
    expected, history = train(tmp_path / "whole", losses[0], **changes)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", losses[1], **changes)
    resumed, again = train(tmp_path / "killed", losses[2], **changes)
    assert again == history
    assert equal_weights(expected, resumed)
    assert equal_weights(losses[0], losses[2])
    start, trained = rank_loss(), losses[0].loss
    assert isinstance(trained, RecallLoss)
    assert int(trained.auxiliary_loss.steps_done) == 15
    sorters = zip(start.sorter_ranks.parameters(), trained.sorter_ranks.parameters(), strict=True)
    assert not any(torch.equal(before, after) for before, after in sorters)
    assert not trained.training


def test_learned_temperature_is_trained_reported_and_resumed_bit_for_bit(
    train: Any, tmp_path: Path, kill_at: Interrupt
) -> None:
    def new_loss() -> InfoNCELoss:
        return InfoNCELoss(temperature=0.5, learn_temperature=True, label_smoothing=0.1)

    losses = [Interrupted(tick, new_loss()) for tick in (lambda: None, kill_at(7), lambda: None)]
    expected, history = train(tmp_path / "whole", losses[0])
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "killed", losses[1])
    resumed, again = train(tmp_path / "killed", losses[2])
    assert again == history
    assert equal_weights(expected, resumed)
    assert equal_weights(losses[0], losses[2])
    temperatures = [row["loss.loss.temperature"] for row in history]
    assert len({0.5, *temperatures}) == 4
    trained = losses[0].loss
    assert isinstance(trained, InfoNCELoss)
    assert temperatures[-1] == trained.learned_values()["temperature"]


def test_resumed_epoch_keeps_its_batches(
    pairs: ImageCaptionPairs, train: Any, tmp_path: Path, kill_at: Interrupt
) -> None:
    epochs: list[int] = []

    def mine(epoch: int) -> list[Tensor]:
        epochs.append(epoch)
        return list(
            torch.randperm(len(pairs)).split(16)
        )  # different batches in each call, as mined with the current model

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "run", Interrupted(kill_at(8), TripletLoss()), sampler=mine)
    train(tmp_path / "run", Interrupted(lambda: None, TripletLoss()), sampler=mine)
    assert epochs == [0, 1, 2]


def test_nonfinite_loss_stops_and_names_the_images(
    pairs: ImageCaptionPairs, train: Any, checkpoints: Path
) -> None:
    class Broken(nn.Module):
        def forward(self, scores: Scores, matches: Tensor) -> Tensor:
            return scores.cross.sum() * torch.nan

    with pytest.raises(FloatingPointError, match="the loss is nan at epoch 1, step 0"):
        train(checkpoints, Broken())
    report = json.loads((checkpoints / "nonfinite_loss.json").read_text())
    assert set(report["images"]) <= set(pairs.image_ids)
    assert (checkpoints / "nonfinite_loss.safetensors").is_file()


def test_fit_trains_any_model_that_returns_scores(
    pairs: ImageCaptionPairs, train: Any, new_model: Callable[[], TwoBranchModel], checkpoints: Path
) -> None:
    class Inner(nn.Module):
        """A model without embed_images and embed_captions."""

        def __init__(self) -> None:
            super().__init__()
            self.hidden = new_model()

        def forward(self, batch: Batch) -> Scores:
            return Scores(self.hidden(batch).cross)

    class Ranking(Inner):
        def retrieval_ranks(self, pairs: ImageCaptionPairs) -> tuple[Ranks, Ranks]:
            return retrieval_ranks(*embed(self.hidden, pairs), pairs.image_of_caption)

    ranking, history = train(checkpoints / "ranking", model=Ranking())
    expected, plain = train(checkpoints / "plain")
    assert history == plain
    assert equal_weights(expected, ranking.hidden)
    with pytest.raises(
        TypeError, match=r"Inner cannot be validated: give it .* or retrieval_ranks"
    ):
        train(checkpoints / "inner", model=Inner())
    with pytest.raises(TypeError, match="micro-batches and several processes need a model with"):
        train(checkpoints / "apart", model=Ranking(), micro_batch_size=4)
