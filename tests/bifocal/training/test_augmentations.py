"""Dropping of regions and of words, and rectangles of maps."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Generator

from bifocal.losses import InfoNCELoss
from bifocal.models.batch import Batch, ImageCaptionPairs
from bifocal.text import TextBatch
from bifocal.text.vectorizers import TFIDF, Concatenated, FromText, MeanWordVectors
from bifocal.text.vectorizers.base import FittedVectorizer, write_text
from bifocal.training import FitOptions, TrainingPhase, train_phases
from bifocal.training.augmentations import (
    RandomRectangle,
    RegionDrop,
    WordDrop,
    drop,
    drop_terms,
    drop_tokens,
    word_columns,
)
from bifocal.training.batches import CaptionBatches
from bifocal.training.inputs import TrainingInputs


def test_drop_keeps_the_expected_fraction_and_at_least_one_element() -> None:
    present = torch.rand(4000, 6, generator=Generator().manual_seed(1)) < 0.8
    kept = drop(present, 0.3, Generator().manual_seed(2))
    assert not (kept & ~present).any()
    assert kept.any(dim=1).equal(present.any(dim=1))
    # One of n elements is always kept: it is dropped with 0.3^n only if all draws are below 0.3.
    counts = present.sum(dim=1).double()
    expected = (0.7 * counts + 0.3**counts * (counts > 0)).sum() / counts.sum()
    assert kept.sum() / present.sum() == pytest.approx(expected.item(), abs=0.01)


def test_region_drop_hides_regions_and_nothing_else(
    pairs: ImageCaptionPairs, inputs: TrainingInputs
) -> None:
    batch = pairs.batch(torch.arange(80))
    changed = RegionDrop(0.5).prepare(inputs)(batch, Generator().manual_seed(0))
    assert batch.regions.mask.all()
    assert 0.3 < changed.regions.mask.double().mean() < 0.8
    assert changed.regions.features is batch.regions.features
    assert changed.text is batch.text


def grid_batch(pairs: ImageCaptionPairs, regions: int) -> Batch:
    batch = pairs.batch(torch.arange(40))
    mask = torch.ones(len(batch.image_ids), regions, dtype=torch.bool)
    return replace(batch, regions=batch.regions._replace(mask=mask))


@pytest.mark.parametrize(("views", "side"), [(1, 9), (2, 6)])
def test_random_rectangles_have_one_size_in_a_step_and_many_places(
    views: int, side: int, pairs: ImageCaptionPairs
) -> None:
    stored: Any = SimpleNamespace(features=SimpleNamespace(pixels=False, regions=views * side**2))
    augment, batch = RandomRectangle(0.6).prepare(stored), grid_batch(pairs, views * side**2)
    sizes, places = set(), set()
    for step in range(40):
        mask = augment(batch, Generator().manual_seed(step)).regions.mask.unflatten(
            1, (views, side, side)
        )
        assert (mask == mask[:, :1]).all()
        rows, columns = mask[:, 0].any(dim=2), mask[:, 0].any(dim=1)
        assert mask[:, 0].equal(rows[:, :, None] & columns[:, None])
        (size,) = {(int(r.sum()), int(c.sum())) for r, c in zip(rows, columns, strict=True)}
        for shown in (*rows, *columns):  # without a gap
            assert int(shown.sum()) == int(shown.nonzero().max() - shown.nonzero().min()) + 1
        sizes.add(size)
        places |= {
            (size, int(r.int().argmax()), int(c.int().argmax()))
            for r, c in zip(rows, columns, strict=True)
        }
    lengths = {length for size in sizes for length in size}
    assert lengths == set(range(-(-6 * side // 10), side + 1))
    assert len(places) > 3 * len(sizes)


def test_random_rectangles_need_a_square_map() -> None:
    stored: Any = SimpleNamespace(features=SimpleNamespace(pixels=False, regions=7))
    with pytest.raises(ValueError, match="the features have 7 regions"):
        RandomRectangle().prepare(stored)
    with pytest.raises(ValueError, match=r"least is 1\.0"):
        RandomRectangle(1.0)


def loops(values: list[Any], kept: list[bool]) -> list[Any]:
    return [value for value, keep in zip(values, kept, strict=True) if keep]


@pytest.mark.parametrize("layers", [0, 2])
def test_word_drop_removes_tokens(layers: int) -> None:
    generator, lengths = Generator().manual_seed(3), torch.tensor([5, 1, 3, 4])
    shape = (4, layers, 5, 2) if layers else (4, 5)
    inside = (torch.arange(5) < lengths.unsqueeze(1)).reshape(
        4, *[1] * bool(layers), 5, *[1] * bool(layers)
    )
    values = torch.randint(1, 1000, shape, generator=generator) * inside
    text = drop_tokens(TextBatch(values, lengths), Generator().manual_seed(8), probability=0.5)
    kept = drop(torch.arange(5) < lengths.unsqueeze(1), 0.5, Generator().manual_seed(8))
    assert not kept[:, :3].all()
    assert (
        text.values.shape == (*shape[:-2], int(kept.sum(dim=1).max()), 2)
        if layers
        else (4, int(kept.sum(1).max()))
    )
    for row in range(4):
        for layer in range(layers or 1):
            given = (values[row, layer] if layers else values[row]).tolist()
            result = (text.values[row, layer] if layers else text.values[row]).tolist()
            expected = loops(given, kept[row].tolist())
            assert int(text.lengths[row]) == len(expected)
            padding = [[0, 0] if layers else 0] * (len(result) - len(expected))
            assert result == expected + padding


def test_word_drop_gives_the_tfidf_of_the_shorter_caption(tmp_path: Path) -> None:
    captions = ["a dog runs on the green grass", "two men sit", "a dog sits on a man", "green"] * 20
    vectorizer = Concatenated(
        [TFIDF(min_count=1, stop_words=False), MeanWordVectors(dim=3, min_count=1, epochs=1)]
    )
    vectorizer.fit(captions, seed=0)
    columns = word_columns(vectorizer)
    terms = vectorizer.fitted_parts[0].format.dim
    assert columns.tolist() == [True] * terms + [False] * 3
    text = FittedVectorizer(vectorizer).vectorize(captions)
    changed = drop_terms(text, Generator().manual_seed(0), columns=columns, probability=0.5)
    torch.testing.assert_close(changed.values[:, terms:], text.values[:, terms:], rtol=0, atol=0)
    dropped = 0
    for before, after in zip(text.values.double(), changed.values.double(), strict=True):
        present = [k for k in range(terms) if before[k]]
        kept = [k for k in range(terms) if after[k]]
        assert kept
        assert set(kept) <= set(present)
        norm = sum(float(before[k]) ** 2 for k in kept) ** 0.5  # the tf-idf of a caption has norm 1
        assert after[kept].tolist() == pytest.approx([float(before[k]) / norm for k in kept])
        dropped += len(present) - len(kept)
    assert 0.3 < dropped / int((text.values[:, :terms] != 0).sum()) < 0.55
    write_text(tmp_path, vectorizer, range(len(captions)), captions)
    from_text = FromText(tmp_path)
    from_text.fit(captions, seed=0)
    assert word_columns(from_text).equal(columns)


def test_augmentations_that_change_nothing_are_errors(
    inputs: TrainingInputs, tmp_path: Path
) -> None:
    vectorizer, captions = (
        MeanWordVectors(dim=3, min_count=1, epochs=1),
        inputs.dataset.captions["text"].tolist(),
    )
    vectorizer.fit(captions, seed=0)
    write_text(tmp_path, vectorizer, range(len(captions)), captions)
    dense = replace(
        inputs, text=type(inputs.text)(tmp_path), vectorizer=FittedVectorizer(vectorizer)
    )
    with pytest.raises(ValueError, match="WordDrop needs words"):
        WordDrop().prepare(dense)

    one: Any = SimpleNamespace(pixels=False, regions=1)
    with pytest.raises(ValueError, match="one vector per image"):
        RegionDrop().prepare(replace(inputs, features=one))
    pixels: Any = SimpleNamespace(pixels=True, regions=9)
    with pytest.raises(ValueError, match="are pixels"):
        RegionDrop().prepare(replace(inputs, features=pixels))
    for part in (RegionDrop, WordDrop):
        assert list(part.conflicts({"probability": 1.0})) == [
            "probability is 1.0: expected a number in (0, 1)"
        ]


def test_phase_with_augmentations_resumes_bit_for_bit(
    inputs: TrainingInputs, new_model: Any, tmp_path: Path, kill_at: Any
) -> None:
    seen: list[tuple[int, int]] = []

    class Watched(InfoNCELoss):
        tick = staticmethod(lambda: None)

        def forward(self, scores: Any, matches: Any) -> Any:
            self.tick()
            return super().forward(scores, matches)

    def run(folder: str, tick: Any, seed: int = 1) -> dict[str, Any]:
        model, loss = new_model(), Watched()
        loss.tick = tick
        embed_images = model.embed_images

        def watched(regions: Any) -> Any:
            if model.training:
                seen.append((int(regions.mask.sum()), regions.mask.numel()))
            return embed_images(regions)

        model.embed_images = watched
        phase = TrainingPhase(
            CaptionBatches(batch_size=16),
            loss,
            epochs=2,
            learning_rate=0.01,
            augmentations=(RegionDrop(0.3), WordDrop(0.3)),
        )
        options = FitOptions(checkpoint_every_seconds=0.0)
        train_phases(
            model, [phase], inputs, checkpoints=tmp_path / folder, options=options, seed=seed
        )
        return model.state_dict()

    expected = run("whole", lambda: None)
    assert sum(kept for kept, _ in seen) < 0.85 * sum(regions for _, regions in seen)
    with pytest.raises(KeyboardInterrupt):
        run("killed", kill_at(6))
    resumed = run("killed", lambda: None)
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in expected.items())


def test_batch_is_not_changed_in_place(pairs: ImageCaptionPairs, inputs: TrainingInputs) -> None:
    batch: Batch = pairs.batch(torch.arange(10))
    values = batch.text.values.clone()
    WordDrop(0.5).prepare(inputs)(batch, Generator().manual_seed(0))
    assert batch.text.values.equal(values)
