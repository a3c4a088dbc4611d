"""Training a backbone on phrases and boxes: targets, learning and resume."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.datasets import Dataset
from bifocal.features.extractors import Grid
from bifocal.onnx.images import open_image
from bifocal.training.pretraining import phrase_words
from bifocal.training.pretraining.phrase_words import (
    WordHeads,
    _PhraseWordsTask,
    _shifted,
    pretrain_on_phrases,
)
from bifocal.training.pretraining.word_targets import (
    TargetVocabulary,
    WordTargets,
    build_target_vocabulary,
)

Interrupt = Callable[[int], Callable[[], None]]
ARGUMENTS: dict[str, Any] = {
    "epochs": 10,
    "batch_size": 16,
    "learning_rate": 0.01,
    "weight_decay": 0.01,
    "min_count": 5,
    "positive_weight": 5.0,
    "image_word_weight": 2.0,
    "seed": 3,
}


def small_grid(seed: int = 0) -> Grid:
    torch.manual_seed(seed)
    return Grid(
        "resnet10t",
        stage=2,
        size=32,
        model_arguments={"channels": (8, 16, 24, 32), "stem_width": 8},
    )


def test_target_vocabulary_has_words_of_phrases_and_words_of_captions_only(
    squares: Dataset,
) -> None:
    assert build_target_vocabulary(squares.split("train"), 5) == TargetVocabulary(
        ["blue", "green", "red", "square"], ["dark", "light", "squares"]
    )
    with pytest.raises(ValueError, match="no word occurs in 1000 phrases with boxes"):
        build_target_vocabulary(squares, 1000)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 6), columns=st.integers(1, 6))
def test_cell_targets_are_the_words_of_the_boxes_that_cover_the_cell(
    squares: Dataset, seed: int, rows: int, columns: int
) -> None:
    words = build_target_vocabulary(squares, 5)
    image_id = str(np.random.default_rng(seed).choice(squares.images["image_id"]))
    targets = WordTargets(squares, words, [image_id])
    expected = np.zeros((rows, columns, len(words.cell) + 1))
    for phrase, boxes in squares.phrases[squares.phrases["image_id"] == image_id][
        ["phrase", "boxes"]
    ].to_numpy():
        for x0, y0, x1, y1 in boxes / 32:
            for row in range(rows):
                for column in range(columns):
                    x, y = (column + 0.5) / columns, (row + 0.5) / rows
                    middle_row, middle_column = (
                        int((y0 + y1) / 2 * rows),
                        int((x0 + x1) / 2 * columns),
                    )
                    if (x0 <= x < x1 or column == middle_column) and (
                        y0 <= y < y1 or row == middle_row
                    ):
                        expected[row, column, -1] = 1
                        for number, word in enumerate(words.cell):
                            expected[row, column, number] += word in phrase.split()
    actual = targets.of_cells(image_id, targets.boxes[image_id], rows, columns)
    np.testing.assert_array_equal(actual, expected > 0)
    caption = squares.captions.set_index("image_id")["text"][image_id]
    assert targets.of_scene(image_id).tolist() == [word in caption.split() for word in words.scene]


def test_image_without_phrases_has_no_cell_targets(squares: Dataset) -> None:
    words = build_target_vocabulary(squares, 5)
    targets = WordTargets(squares, words, ["nothing"])
    assert not targets.of_cells("nothing", targets.boxes["nothing"], 2, 2).any()


@pytest.mark.filterwarnings("error")
def test_heads_without_words_of_whole_images_have_no_logits_for_them() -> None:
    cells, scene = WordHeads(3, 2, 0)(torch.zeros(4, 3, 5, 6))
    assert (cells.shape, scene.shape) == ((4, 5, 6, 2), (4, 0))


def test_boxes_are_mirrored_and_shifted_with_the_pixels(squares: Dataset) -> None:
    extractor, words = small_grid(), build_target_vocabulary(squares, 5)
    image_ids = list(squares.images["image_id"])
    targets = WordTargets(squares, words, image_ids)
    extractor.map_shape = (3, 32, 32)  # a cell is a pixel
    task = _PhraseWordsTask(
        extractor, WordHeads(3, 1, 1), squares, targets, image_ids, 16, 5.0, 2.0, 0
    )
    color_of = {"blue": 2, "green": 1, "red": 0}
    labeled_cells = 0
    count, batches = task.batches(0, first_step=0)
    for pixels, cells, _ in batches:
        count -= 1
        for image, target in zip(pixels, cells, strict=True):
            for word, channel in color_of.items():
                others = [c for c in range(3) if c != channel]
                painted = (image[channel] > 195) & (image[others] < 60).all(dim=0)
                labeled = target[:, :, words.cell.index(word)] > 0
                # A reflected border may be painted without a box.
                assert (painted & labeled).sum() >= 0.99 * labeled.sum()
                labeled_cells += int(labeled.sum())
    assert count == 0
    assert labeled_cells > len(image_ids) * 100


@pytest.mark.slow
def test_pretrain_on_phrases_learns_and_resumes_bit_for_bit(
    squares: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kill_at: Interrupt,
    sigterm_at: Interrupt,
) -> None:
    undisturbed = small_grid()
    metrics = pretrain_on_phrases(
        undisturbed, squares, checkpoints=tmp_path / "undisturbed", **ARGUMENTS
    )
    for kind in ("word", "object", "scene_word"):
        assert 1 - metrics[f"{kind}_ap"] < (1 - metrics[f"{kind}_ap_chance"]) / 2
    assert not undisturbed.backbone.network.training

    forward = WordHeads.forward
    for name, tick in {"killed": kill_at(11), "terminated": sigterm_at(11)}.items():
        with monkeypatch.context() as patch:
            patch.setattr(
                WordHeads, "forward", lambda *arguments, tick=tick: (tick(), forward(*arguments))[1]
            )
            with pytest.raises((KeyboardInterrupt, SystemExit)):
                pretrain_on_phrases(small_grid(), squares, checkpoints=tmp_path / name, **ARGUMENTS)
        resumed = small_grid(seed=9)
        assert (
            pretrain_on_phrases(resumed, squares, checkpoints=tmp_path / name, **ARGUMENTS)
            == metrics
        )
        for key, tensor in undisturbed.backbone.network.state_dict().items():
            assert torch.equal(tensor, resumed.backbone.network.state_dict()[key])


def test_pretrain_on_phrases_rejects_images_of_different_shapes(
    squares: Dataset, tmp_path: Path
) -> None:
    grid = Grid("resnet10t", size=32, resize="aspect")
    with pytest.raises(ValueError, match="set resize to 'square'"):
        pretrain_on_phrases(grid, squares, checkpoints=tmp_path, **ARGUMENTS)


@given(seed=st.integers(0, 2**32 - 1), side=st.sampled_from([16, 48]))
def test_shifted_pixels_are_a_window_of_the_reflected_image(seed: int, side: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (3, side, side), dtype=np.uint8)
    limit = side // 16
    found, (x, y) = _shifted(pixels, np.random.default_rng(seed))
    left, top = limit - round(x * side), limit - round(y * side)
    padded = np.pad(pixels, ((0, 0), (limit, limit), (limit, limit)), mode="reflect")
    np.testing.assert_array_equal(found, padded[:, top : top + side, left : left + side])


def test_only_so_many_decoded_images_stay_in_memory(
    squares: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phrase_words, "MAX_DECODED_BYTES", 2 * 3 * 32 * 32)
    grid, train = small_grid(), squares.split("train")
    image_ids = [str(image_id) for image_id in train.images["image_id"]]
    words = build_target_vocabulary(train, 5)
    heads = WordHeads(grid.map_shape[0], len(words.cell) + 1, len(words.scene))
    targets = WordTargets(train, words, image_ids)
    task = _PhraseWordsTask(grid, heads, train, targets, image_ids, 4, 1.0, 1.0, 0)
    for _ in range(2):
        for image_id in image_ids[:4]:
            expected = grid.preprocess(open_image(train.image_path(image_id))).numpy()
            np.testing.assert_array_equal(task._pixels(image_id), expected)
    assert list(task.decoded) == image_ids[:2]
