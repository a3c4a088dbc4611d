"""Batches of captions of distinct images."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.training.batches import DistinctImageBatches
from bifocal.training.batches.distinct_images import distinct_batches


@given(images=st.integers(1, 12), each=st.integers(1, 5), size=st.integers(1, 12), seed=st.integers(0, 99))
def test_distinct_batches_have_one_size_and_no_image_twice(images: int, each: int, size: int, seed: int) -> None:
    image_of_caption = torch.arange(images).repeat(each)
    if size > images:
        with pytest.raises(ValueError, match=f"batch_size is {size}, but there are only {images} images: lower it"):
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
    kept = [set(torch.cat(distinct_batches(image_of_caption, 6, 1, epoch)).tolist()) for epoch in range(8)]
    assert len(set.union(*kept)) == 20
    assert all(len(rows) == 18 for rows in kept)
