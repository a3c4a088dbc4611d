"""Training a backbone on phrases and boxes: its targets, that it learns, and that it goes on where it was killed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets import Dataset
from bifocal.features.extractors import Grid
from bifocal.pretraining import phrase_words as pretraining
from bifocal.pretraining.phrase_words import pretrain, rate
from bifocal.pretraining.word_targets import TargetVocabulary, WordTargets, learnt_words

CONFIGURATION: dict[str, Any] = {
    "epochs": 10,
    "batch_size": 16,
    "learning_rate": 0.01,
    "weight_decay": 0.01,
    "min_count": 5,
    "positive_weight": 5.0,
    "scene_weight": 2.0,
    "seed": 3,
}


def small_grid(seed: int = 0) -> Grid:
    torch.manual_seed(seed)
    return Grid("resnet10t", stage=2, size=32, model_arguments={"channels": (8, 16, 24, 32), "stem_width": 8})


def test_words_are_those_of_phrases_and_of_captions_alone(squares: Dataset) -> None:
    assert learnt_words(squares.split("train"), 5) == TargetVocabulary(
        ["blue", "green", "red", "square"], ["dark", "light", "squares"]
    )
    with pytest.raises(ValueError, match="no word stands in 1000 phrases with boxes"):
        learnt_words(squares, 1000)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 6), columns=st.integers(1, 6))
def test_a_cell_has_the_words_of_the_boxes_it_lies_in(squares: Dataset, seed: int, rows: int, columns: int) -> None:
    words = learnt_words(squares, 5)
    image_id = str(np.random.default_rng(seed).choice(squares.images["image_id"]))
    targets = WordTargets(squares, words, [image_id])
    expected = np.zeros((rows, columns, len(words.cell) + 1))
    for phrase, boxes in squares.phrases[squares.phrases["image_id"] == image_id][["phrase", "boxes"]].to_numpy():
        for x0, y0, x1, y1 in boxes / 32:
            for row in range(rows):
                for column in range(columns):
                    x, y = (column + 0.5) / columns, (row + 0.5) / rows
                    middle_row, middle_column = int((y0 + y1) / 2 * rows), int((x0 + x1) / 2 * columns)
                    if (x0 <= x < x1 or column == middle_column) and (y0 <= y < y1 or row == middle_row):
                        expected[row, column, -1] = 1
                        for number, word in enumerate(words.cell):
                            expected[row, column, number] += word in phrase.split()
    found = targets.of_cells(image_id, targets.boxes[image_id], rows, columns)
    np.testing.assert_array_equal(found, expected > 0)
    caption = squares.captions.set_index("image_id")["text"][image_id]
    assert targets.of_scene(image_id).tolist() == [word in caption.split() for word in words.scene]


def test_an_image_without_phrases_has_no_words(squares: Dataset) -> None:
    words = learnt_words(squares, 5)
    targets = WordTargets(squares, words, ["nothing"])
    assert not targets.of_cells("nothing", targets.boxes["nothing"], 2, 2).any()


def test_boxes_are_mirrored_and_moved_with_the_pixels(squares: Dataset) -> None:
    kind, words = small_grid(), learnt_words(squares, 5)
    image_ids = list(squares.images["image_id"])
    targets = WordTargets(squares, words, image_ids)
    grid = (32, 32)  # a cell is a pixel
    colour_of = {"blue": 2, "green": 1, "red": 0}
    seen = 0
    for pixels, cells, _ in pretraining._batches(kind, squares, targets, image_ids, 16, grid, 0, 0):
        for image, wanted in zip(pixels, cells, strict=True):
            for word, channel in colour_of.items():
                others = [c for c in range(3) if c != channel]
                painted = (image[channel] > 195) & (image[others] < 60).all(dim=0)
                labelled = wanted[:, :, words.cell.index(word)] > 0
                # Where the border is reflected, colour may stand without a box.
                assert (painted & labelled).sum() >= 0.99 * labelled.sum()
                seen += int(labelled.sum())
    assert seen > len(image_ids) * 100


def test_the_rate_rises_and_falls() -> None:
    rates = [rate(done) for done in np.linspace(0, 1, 101)]
    assert rates[0] == 0
    assert rates[100] == pytest.approx(0)
    assert max(rates) == pytest.approx(1)
    peak = int(np.argmax(rates))
    assert rates == sorted(rates[: peak + 1]) + sorted(rates[peak + 1 :], reverse=True)


def test_it_learns_what_stands_where_and_resumes_bit_for_bit(
    squares: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = small_grid()
    figures = pretrain(undisturbed, squares, checkpoints=tmp_path / "undisturbed", **CONFIGURATION)
    assert figures["word_ap"] > 0.9 > 3 * figures["word_ap_chance"]
    assert figures["object_ap"] > 0.9
    assert figures["scene_word_ap"] > 0.9
    assert not undisturbed.backbone.network.training

    save = pretraining.save_checkpoint

    def save_and_die(path: Path, model: Any, optimizer: Any, progress: dict[str, Any]) -> None:
        save(path, model, optimizer, progress)
        if progress["epoch"] == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(pretraining, "save_checkpoint", save_and_die)
    with pytest.raises(KeyboardInterrupt):
        pretrain(small_grid(), squares, checkpoints=tmp_path / "killed", **CONFIGURATION)
    monkeypatch.setattr(pretraining, "save_checkpoint", save)
    resumed = small_grid(seed=9)
    assert pretrain(resumed, squares, checkpoints=tmp_path / "killed", **CONFIGURATION) == figures
    for name, tensor in undisturbed.backbone.network.state_dict().items():
        assert torch.equal(tensor, resumed.backbone.network.state_dict()[name])


def test_images_of_many_shapes_are_refused(squares: Dataset, tmp_path: Path) -> None:
    grid = Grid("resnet10t", size=32, resize="aspect")
    with pytest.raises(ValueError, match="set resize to 'square'"):
        pretrain(grid, squares, checkpoints=tmp_path, **CONFIGURATION)
