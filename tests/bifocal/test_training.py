"""The training loop on a small collection with real stores."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from bifocal.batch import Pairs
from bifocal.embedding import embed
from bifocal.losses import HardestTripletLoss, TripletLoss
from bifocal.metrics import retrieval_ranks
from bifocal.models import TwoBranchModel, build_two_branch, load_model, save_model
from bifocal.scores import Scores
from bifocal.training import epoch_batches, fit

CONFIGURATION: dict[str, Any] = {
    "image_encoder": {"name": "SmileEncoder"},
    "text_encoder": {"name": "SruEncoder", "layers": 2, "dropout": 0.1},
    "dim": 16,
    "feature_dim": 12,
    "text_dim": 8,
    "text_kind": "tokens",
    "words": 30,
}


def new_model(pairs: Pairs) -> TwoBranchModel:
    torch.manual_seed(5)
    return build_two_branch(**CONFIGURATION | {"words": len(pairs.text.vocabulary)})


def train(
    pairs: Pairs, checkpoints: Path, loss: nn.Module | None = None, **changes: Any
) -> tuple[TwoBranchModel, list[dict[str, float]]]:
    model = new_model(pairs)
    arguments: dict[str, Any] = {
        "sampler": partial(epoch_batches, pairs.image_of_caption, 16, 1, 3),
        "epochs": 3,
        "precision": "float32",
        "learning_rate": 0.01,
        "optimizer": {"name": "Adam"},
        "decay_after": [2],
        "decay_factor": 0.5,
        "clip_norm": 2.0,
        "train_from": {},
        "average": 0.0,
        "micro_batch": None,
        "checkpoint_every": 2,
        "seed": 3,
    }
    history = fit(model, loss or TripletLoss(), pairs, pairs, checkpoints=checkpoints, **arguments | changes)
    return model, history


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_it_learns(pairs: Pairs, checkpoints: Path, precision: str) -> None:
    model, history = train(pairs, checkpoints, epochs=20, decay_after=[], precision=precision)
    by_captions, by_images = retrieval_ranks(*embed(model, pairs), pairs.image_of_caption)
    assert min(by_captions.recall(1), by_images.recall(1)) > 0.7  # chance: 0.025
    assert max(row["recall_sum"] for row in history) == pytest.approx(
        100 * sum(found.recall(k) for found in (by_captions, by_images) for k in (1, 5, 10))
    )


def test_the_learning_rate_is_halved(pairs: Pairs, checkpoints: Path) -> None:
    _, history = train(pairs, checkpoints, epochs=4, decay_after=[1, 3])
    assert [row["learning_rate"] for row in history] == [0.01, 0.005, 0.005, 0.0025]


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 6, 11])
def test_a_killed_run_ends_with_the_same_bits(
    pairs: Pairs, tmp_path: Path, kill_at: Callable[[int], Callable[[], None]], steps: int
) -> None:
    expected, history = train(pairs, tmp_path / "undisturbed")
    tick = kill_at(steps)

    class Interrupted(TripletLoss):
        def forward(self, scores: Scores, matches: Tensor) -> Tensor:
            tick()
            return super().forward(scores, matches)

    with pytest.raises(KeyboardInterrupt):
        train(pairs, tmp_path / "killed", Interrupted())
    torch.manual_seed(99)
    found, again = train(pairs, tmp_path / "killed")
    assert again == history
    for name, tensor in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def test_parts_wait_for_their_epoch(pairs: Pairs, checkpoints: Path) -> None:
    start = new_model(pairs).state_dict()
    model, _ = train(pairs, checkpoints, epochs=2, train_from={"text_encoder": 2, "words": 1})
    moved = {
        part: any(not torch.equal(start[name], tensor) for name, tensor in model.state_dict().items() if part in name)
        for part in ("text_encoder", "words", "image_encoder")
    }
    assert moved["image_encoder"]
    assert not moved["text_encoder"]
    with pytest.raises(ValueError, match="the model has no 'text_encodr'"):
        train(pairs, checkpoints, train_from={"text_encodr": 1})


def test_a_loss_that_is_no_number_stops_with_its_state(pairs: Pairs, checkpoints: Path) -> None:
    class Broken(nn.Module):
        def forward(self, scores: Scores, matches: Tensor) -> Tensor:
            return scores.cross.sum() * torch.nan

    with pytest.raises(FloatingPointError, match="the loss is nan at epoch 1, step 0"):
        train(pairs, checkpoints, Broken())
    notes = json.loads((checkpoints / "not_a_number.json").read_text())
    assert set(notes["images"]) <= set(pairs.image_ids)
    assert (checkpoints / "not_a_number.safetensors").is_file()


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    size=st.integers(1, 20),
    together=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_every_caption_comes_once_and_groups_stay_together(
    counts: list[int], size: int, together: int, seed: int
) -> None:
    image_of_caption = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    image_of_caption = image_of_caption[torch.randperm(len(image_of_caption))]
    batches = epoch_batches(image_of_caption, size, together, seed, epoch=0)
    assert torch.cat(batches).sort().values.tolist() == list(range(sum(counts)))
    # An image of c captions makes ceil(c / together) groups, so it is in that many batches at most.
    for image, count in enumerate(counts):
        in_batches = sum(bool((image_of_caption[rows] == image).any()) for rows in batches)
        assert in_batches <= -(-count // together)


def test_epochs_differ_and_seeds_repeat() -> None:
    image_of_caption = torch.arange(50).repeat_interleave(2)
    first, second, again = (
        torch.cat(epoch_batches(image_of_caption, 10, 1, seed=1, epoch=epoch)) for epoch in (0, 1, 0)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_a_saved_model_is_the_same_model(pairs: Pairs, tmp_path: Path) -> None:
    model = new_model(pairs)
    save_model(tmp_path, CONFIGURATION | {"words": len(pairs.text.vocabulary)}, model.state_dict())
    for found, expected in zip(embed(load_model(tmp_path), pairs), embed(model, pairs), strict=True):
        assert torch.equal(found, expected)
    with pytest.raises(FileNotFoundError, match="holds no model"):
        load_model(tmp_path / "elsewhere")


def test_scores_of_a_batch_are_cosines_of_its_embeddings(pairs: Pairs) -> None:
    model = new_model(pairs).eval()
    images, captions = embed(model, pairs)
    rows = torch.tensor([4, 71, 5, 30])
    batch = pairs.batch(rows)
    assert batch.image_ids == ["image 2", "image 15", "image 35"]
    assert batch.matches.int().tolist() == [[1, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    with torch.inference_mode():
        scores = model(batch)
    torch.testing.assert_close(scores.cross, images[[2, 15, 35]] @ captions[rows].T)
    assert HardestTripletLoss()(scores, batch.matches).isfinite()


def test_pairs_refuse_images_without_captions(stores: Any) -> None:
    tables, features, text = stores
    lonely = type(tables)(tables.images, tables.captions.iloc[2:], tables.phrases, tables.image_root)
    with pytest.raises(ValueError, match="1 of 40 images have no caption"):
        Pairs(lonely, features, text)
