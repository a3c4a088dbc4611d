"""Batches of captions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.training.batches import CaptionBatches, DistinctImageBatches
from bifocal.training.batches.captions import append_captions, caption_batches, distinct_batches


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    size=st.integers(1, 20),
    together=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_caption_batches_hold_every_caption_once_and_keep_groups_together(
    counts: list[int], size: int, together: int, seed: int
) -> None:
    image_of_caption = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    image_of_caption = image_of_caption[torch.randperm(len(image_of_caption))]
    batches = caption_batches(image_of_caption, size, together, seed, epoch=0)
    assert torch.cat(batches).sort().values.tolist() == list(range(sum(counts)))
    # An image of c captions has ceil(c / together) groups, so it is in at most as many batches.
    for image, count in enumerate(counts):
        in_batches = sum(bool((image_of_caption[rows] == image).any()) for rows in batches)
        assert in_batches <= -(-count // together)


def test_caption_batches_differ_by_epoch_and_repeat_by_seed() -> None:
    image_of_caption = torch.arange(50).repeat_interleave(2)
    first, second, again = (
        torch.cat(caption_batches(image_of_caption, 10, 1, seed=1, epoch=epoch))
        for epoch in (0, 1, 0)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    size=st.integers(1, 20),
    added=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_append_captions_adds_captions_of_the_same_images(
    counts: list[int], size: int, added: int, seed: int
) -> None:
    image_of_caption = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    image_of_caption = image_of_caption[torch.randperm(len(image_of_caption))]
    batches = caption_batches(image_of_caption, size, 1, seed, epoch=2)
    larger = append_captions(image_of_caption, batches, added, seed, epoch=2)
    assert len(larger) == len(batches)
    for rows, more in zip(batches, larger, strict=True):
        assert torch.equal(more[: len(rows)], rows)
        assert len(more.unique()) == len(more)
        for image, count in enumerate(counts):
            before, after = (int((image_of_caption[some] == image).sum()) for some in (rows, more))
            assert after == (min(count, before + added) if before else 0)


def test_append_captions_differs_by_epoch_and_repeats_by_seed() -> None:
    image_of_caption = torch.arange(20).repeat_interleave(5)
    rows = [torch.arange(0, 100, 5)]
    first, second, again = (
        append_captions(image_of_caption, rows, 1, seed=1, epoch=epoch)[0] for epoch in (0, 1, 0)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


def test_caption_batches_append_extra_captions() -> None:
    image_of_caption = torch.arange(20).repeat_interleave(5)
    plain = CaptionBatches(batch_size=10).sampler(image_of_caption, seed=1)(3)
    larger = CaptionBatches(batch_size=10, extra_captions_per_image=1).sampler(
        image_of_caption, seed=1
    )(3)
    for rows, more in zip(plain, larger, strict=True):
        assert torch.equal(more[:10], rows)
        assert len(more) == 10 + len(image_of_caption[rows].unique())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0: expected 1 or more"),
        ({"captions_per_image": 0}, "captions_per_image is 0: expected 1 or more"),
        ({"extra_captions_per_image": -1}, "extra_captions_per_image is -1: expected 0 or more"),
        (
            {"batch_size": 4, "captions_per_image": 5},
            "captions_per_image is 5, but a batch has 4 captions",
        ),
    ],
)
def test_caption_batches_reject_contradictory_sizes(
    arguments: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        CaptionBatches(**arguments)
    assert message in " ".join(CaptionBatches.conflicts(arguments))


@given(
    images=st.integers(1, 12),
    each=st.integers(1, 5),
    size=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_distinct_batches_have_one_size_and_no_image_twice(
    images: int, each: int, size: int, seed: int
) -> None:
    image_of_caption = torch.arange(images).repeat(each)
    if size > images:
        with pytest.raises(
            ValueError, match=f"batch_size is {size}, but there are only {images} images: lower it"
        ):
            DistinctImageBatches(size).sampler(image_of_caption, seed)
        return
    batches = DistinctImageBatches(size).sampler(image_of_caption, seed)(0)
    assert all(len(image_of_caption[rows].unique()) == len(rows) == size for rows in batches)
    rows = torch.cat(batches)
    assert len(rows.unique()) == len(rows) > images * each - size  # less than a batch is left out


@given(counts=st.lists(st.integers(1, 6), min_size=4, max_size=12), seed=st.integers(0, 99))
def test_distinct_batches_of_uneven_images(counts: list[int], seed: int) -> None:
    image_of_caption = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    batches = distinct_batches(image_of_caption, 4, seed, epoch=1)
    assert batches
    assert all(len(image_of_caption[rows].unique()) == len(rows) == 4 for rows in batches)
    rows = torch.cat(batches)
    assert len(rows.unique()) == len(rows)


def test_distinct_batches_leave_out_other_captions_in_every_epoch() -> None:
    image_of_caption = torch.arange(10).repeat_interleave(2)
    kept = [
        set(torch.cat(distinct_batches(image_of_caption, 6, 1, epoch)).tolist())
        for epoch in range(8)
    ]
    assert len(set.union(*kept)) == 20
    assert all(len(rows) == 18 for rows in kept)
