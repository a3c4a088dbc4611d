"""Which captions share a batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.training.batches.captions import append_captions, distinct_batches, epoch_batches


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


@given(images=st.integers(1, 12), each=st.integers(1, 5), size=st.integers(1, 12), seed=st.integers(0, 99))
def test_distinct_batches_have_one_size_and_no_image_twice(images: int, each: int, size: int, seed: int) -> None:
    image_of_caption = torch.arange(images).repeat(each)
    if size > images:
        with pytest.raises(ValueError, match=f"batch_size is {size}, but there are only {images} different images"):
            distinct_batches(image_of_caption, size, seed, epoch=0)
        return
    batches = distinct_batches(image_of_caption, size, seed, epoch=0)
    assert all(len(image_of_caption[rows].unique()) == len(rows) == size for rows in batches)
    rows = torch.cat(batches)
    assert len(rows.unique()) == len(rows) > images * each - size  # fewer than a batch sit out


@given(counts=st.lists(st.integers(1, 6), min_size=4, max_size=12), seed=st.integers(0, 99))
def test_distinct_batches_of_uneven_images(counts: list[int], seed: int) -> None:
    image_of_caption = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    batches = distinct_batches(image_of_caption, 4, seed, epoch=1)
    assert batches
    assert all(len(image_of_caption[rows].unique()) == len(rows) == 4 for rows in batches)
    rows = torch.cat(batches)
    assert len(rows.unique()) == len(rows)


def test_distinct_batches_leave_out_others_in_every_epoch() -> None:
    image_of_caption = torch.arange(10).repeat_interleave(2)
    kept = [set(torch.cat(distinct_batches(image_of_caption, 6, 1, epoch)).tolist()) for epoch in range(8)]
    assert len(set.union(*kept)) == 20
    assert all(len(rows) == 18 for rows in kept)


@given(
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=12),
    size=st.integers(1, 20),
    added=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_added_captions_are_others_of_the_same_images(counts: list[int], size: int, added: int, seed: int) -> None:
    image_of_caption = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    image_of_caption = image_of_caption[torch.randperm(len(image_of_caption))]
    batches = epoch_batches(image_of_caption, size, 1, seed, epoch=2)
    larger = append_captions(image_of_caption, batches, added, seed, epoch=2)
    assert len(larger) == len(batches)
    for rows, more in zip(batches, larger, strict=True):
        assert torch.equal(more[: len(rows)], rows)
        assert len(more.unique()) == len(more)
        for image, count in enumerate(counts):
            before, after = (int((image_of_caption[some] == image).sum()) for some in (rows, more))
            assert after == (min(count, before + added) if before else 0)


def test_added_captions_differ_from_epoch_to_epoch() -> None:
    image_of_caption = torch.arange(20).repeat_interleave(5)
    rows = [torch.arange(0, 100, 5)]
    first, second, again = (append_captions(image_of_caption, rows, 1, seed=1, epoch=epoch)[0] for epoch in (0, 1, 0))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
