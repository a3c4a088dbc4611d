"""The text store: captions of every format are read as written."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.onnx.text.captions import DTYPES, EncodedCaptions, FormatName, TextFormat
from bifocal.text import TextStore
from bifocal.text.store import BATCH, write_store

DIM, LAYERS = 3, 2


def random_rows(name: FormatName, count: int, seed: int) -> EncodedCaptions:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 6, size=count)
    if name == "tokens":
        return EncodedCaptions(
            [generator.integers(1, 9, size=length).astype(np.int32) for length in lengths]
        )
    size = {"vectors": 1, "contextual": LAYERS}.get(name, 0) * DIM
    if name == "sparse":
        indices = [np.flatnonzero(generator.random(DIM) < 0.5).astype(np.int32) for _ in lengths]
        return EncodedCaptions(
            [generator.random(len(row), dtype=np.float32) for row in indices], indices
        )
    steps = lengths if name == "contextual" else np.ones_like(lengths)
    return EncodedCaptions(
        [generator.random(size * length).astype(DTYPES[name]) for length in steps]
    )


def write(directory: Path, name: FormatName, rows: EncodedCaptions) -> TextStore:
    def batches() -> list[EncodedCaptions]:
        starts = range(0, len(rows.values), BATCH)
        return [
            EncodedCaptions(
                rows.values[start : start + BATCH],
                rows.indices and rows.indices[start : start + BATCH],
            )
            for start in starts
        ]

    text_format = TextFormat(name, DIM, LAYERS if name == "contextual" else 1)
    write_store(
        directory, text_format, [7 * row for row in range(len(rows.values))], iter(batches())
    )
    return TextStore(directory)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("count", [1, BATCH + 5])
def test_captions_are_read_as_written(tmp_path: Path, name: FormatName, count: int) -> None:
    rows = random_rows(name, count, seed=0)
    store = write(tmp_path, name, rows)
    assert (store.format.name, store.dim, len(store)) == (name, DIM, count)
    order = np.random.default_rng(1).permutation(count)
    values, lengths = store.gather(store.rows(7 * order))
    for position, row in enumerate(order):
        gathered, written = values[position].numpy(), rows.values[row]
        if name == "sparse":
            expected = np.zeros(DIM, np.float32)
            assert rows.indices is not None
            expected[rows.indices[row]] = written
        elif name == "contextual":
            length = lengths[position]
            expected = written.reshape(LAYERS, -1, DIM)
            assert not gathered[:, length:].any()
            gathered = gathered[:, :length]
        elif name == "tokens":
            expected = written
            assert not gathered[lengths[position] :].any()
            gathered = gathered[: lengths[position]]
        else:
            expected = written
        np.testing.assert_array_equal(gathered, expected)


@given(rows=st.lists(st.integers(0, 19), min_size=1, max_size=8))
def test_batch_equals_its_captions_one_by_one(
    rows: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = write(tmp_path_factory.mktemp("text"), "tokens", random_rows("tokens", 20, seed=2))
    batch = store.gather(rows)
    for position, row in enumerate(rows):
        single = store.gather([row])
        assert batch.lengths[position] == single.lengths[0]
        assert torch.equal(batch.values[position, : batch.lengths[position]], single.values[0])


def test_same_captions_give_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name, "vectors", random_rows("vectors", 30, seed=3))
        written.append((tmp_path / name / "captions.arrow").read_bytes())
    assert written[0] == written[1]


def test_missing_caption_is_named(tmp_path: Path) -> None:
    store = write(tmp_path, "vectors", random_rows("vectors", 3, seed=4))
    with pytest.raises(ValueError, match="lacks 1 of 2, the first is 8"):
        store.rows([7, 8])


def test_truncated_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "vectors", random_rows("vectors", 30, seed=5))
    file = tmp_path / "captions.arrow"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is truncated"):
        TextStore(tmp_path)


def test_folder_without_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="contains no text"):
        TextStore(tmp_path)


def test_vectors_have_no_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contains vectors, not tokens"):
        _ = write(tmp_path, "vectors", random_rows("vectors", 3, seed=6)).vocabulary
