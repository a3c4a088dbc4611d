"""``--budget``: image size and epochs that fit into a time."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bifocal.datasets.corpora import Scenes
from bifocal.image_encoders import LinearEncoder, SMILEEncoder
from bifocal.image_encoders.base import ImageEncoder
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import write_text
from components.catalog import configurable_components
from pipelines.app.run_folder import shipped_file
from pipelines.app.training.budget import (
    EPOCHS,
    FIXED,
    PER_IMAGE,
    RESERVE,
    Choice,
    Costs,
    choose,
    measure,
    parse_budget,
    settings,
)
from runtime import parameters


@given(
    seconds=st.floats(1, 1e5),
    images=st.integers(1, 100_000),
    extraction=st.floats(1e-4, 1),
    epoch=st.floats(1e-5, 0.1),
)
def test_the_choice_fits_or_is_the_smallest(
    seconds: float, images: int, extraction: float, epoch: float
) -> None:
    costs = Costs(extraction, epoch, 260)
    choice = choose(seconds, images, images, costs)
    assert EPOCHS[0] <= choice.epochs <= EPOCHS[1]
    area = (choice.size / 260) ** 2
    expected = FIXED + images * (PER_IMAGE + area * extraction + choice.epochs * area * epoch)
    assert choice.seconds == pytest.approx(expected)
    smallest = choice.size == 128 and choice.epochs == EPOCHS[0]
    assert choice.seconds <= (1 - RESERVE) * seconds + 1e-6 or smallest
    more = choose(2 * seconds, images, images, costs)
    assert (more.size, more.epochs) >= (choice.size, choice.epochs) or more.size > choice.size


def test_times_are_read() -> None:
    assert [parse_budget(text) for text in ("45s", "30m", "2h")] == [45, 1800, 7200]
    for text in ("30", "m", "0m", "-5m", "1d"):
        with pytest.raises(ValueError, match="expected a time such as 90s, 30m or 2h"):
            parse_budget(text)


def test_parameters_of_a_choice_are_valid_and_keep_the_schedule() -> None:
    values = parameters.load(shipped_file("params.yaml"), [shipped_file("recipes/own/images.yaml")])
    values["prepare_dataset"]["corpus"]["root"] = "photos"
    chosen = parameters.merge(
        values, settings(Choice(160, 5, 1.0), values["train_embedding"]["phases"])
    )
    parameters.validate(chosen, configurable_components().values())
    assert chosen["extract_features"]["extractor"]["size"] == 160
    (phase,) = chosen["train_embedding"]["phases"]
    assert (phase["epochs"], phase["schedule"]["milestones"]) == (5, [2, 3, 4])


@pytest.mark.parametrize("encoder", [SMILEEncoder, LinearEncoder])
def test_measured_times_are_those_of_the_model_that_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: type[ImageEncoder]
) -> None:
    Scenes(train=2, val=0, test=0, size=64).read(tmp_path / "photos")
    files, captions = sorted(tmp_path.rglob("*.jpg")), ["a red circle", "a blue square"]
    vectorizer = TFIDF()
    vectorizer.fit(captions, seed=0)
    (tmp_path / "text").mkdir()
    write_text(tmp_path / "text", vectorizer, [0, 1], captions)
    shapes = []
    forward: Callable[..., Tensor] = encoder.forward

    def record(self: ImageEncoder, features: Tensor, mask: Tensor) -> Tensor:
        shapes.append(tuple(features.shape))
        return forward(self, features, mask)

    monkeypatch.setattr(encoder, "forward", record)
    network = {
        "backbone": "resnet10t",
        "model_arguments": {"channels": [8, 16, 24, 32], "stem_width": 8},
    }
    training = {
        "model": {
            "name": "TwoBranchModel",
            "dim": 8,
            "image_encoder": encoder.__name__,
            "text_encoder": "BagOfWordsEncoder",
        },
        "phases": [{"batches": {"name": "CaptionBatches", "captions_per_image": 2}}],
        "optimizer": {"name": "Adam"},
        "precision": "float32",
    }
    costs = measure(
        {"extractor": {"name": "Grid", "size": 64, **network}}, training, tmp_path / "text", files
    )
    assert shapes == [(64, 4, 32)] * 2  # images of a batch, cells, channels
    assert costs.size == 64
    assert costs.cells
    assert 0 < costs.extraction < 10
    assert 0 < costs.epoch < 10
    with pytest.raises(ValueError, match=r"--budget chooses extract_features\.extractor\.size"):
        measure({"extractor": "Grid"}, training, tmp_path / "text", files)


def test_only_cells_make_an_epoch_shorter_at_a_smaller_size() -> None:
    choices = [
        choose(250, 1000, 1000, Costs(0.5, 0.01, 260, cells=cells)) for cells in (True, False)
    ]
    assert [choice.size for choice in choices] == [128, 128]
    assert choices[0].epochs > choices[1].epochs
