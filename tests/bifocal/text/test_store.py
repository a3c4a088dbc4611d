"""The text store: what was written comes back, whatever its kind."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bifocal.text import TextStore
from bifocal.text.format import DTYPES, Kind, Layout, Rows
from bifocal.text.store import BATCH, write_store

DIM, LAYERS = 3, 2


def random_rows(kind: Kind, count: int, seed: int) -> Rows:
    generator = np.random.default_rng(seed)
    lengths = generator.integers(1, 6, size=count)
    if kind == "tokens":
        return Rows([generator.integers(1, 9, size=length).astype(np.int32) for length in lengths])
    size = {"vectors": 1, "contextual": LAYERS}.get(kind, 0) * DIM
    if kind == "sparse":
        places = [np.flatnonzero(generator.random(DIM) < 0.5).astype(np.int32) for _ in lengths]
        return Rows([generator.random(len(row), dtype=np.float32) for row in places], places)
    steps = lengths if kind == "contextual" else np.ones_like(lengths)
    return Rows([generator.random(size * length).astype(DTYPES[kind]) for length in steps])


def write(directory: Path, kind: Kind, rows: Rows) -> TextStore:
    def batches() -> list[Rows]:
        starts = range(0, len(rows.values), BATCH)
        return [
            Rows(rows.values[start : start + BATCH], rows.indices and rows.indices[start : start + BATCH])
            for start in starts
        ]

    layout = Layout(kind, DIM, LAYERS if kind == "contextual" else 1)
    write_store(directory, layout, [7 * row for row in range(len(rows.values))], iter(batches()))
    return TextStore(directory)


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("count", [1, BATCH + 5])
def test_every_caption_comes_back(tmp_path: Path, kind: Kind, count: int) -> None:
    rows = random_rows(kind, count, seed=0)
    store = write(tmp_path, kind, rows)
    assert (store.kind, store.dim, len(store)) == (kind, DIM, count)
    order = np.random.default_rng(1).permutation(count)
    values, lengths = store.gather(store.rows(7 * order))
    for position, row in enumerate(order):
        found, kept = values[position].numpy(), rows.values[row]
        if kind == "sparse":
            expected = np.zeros(DIM, np.float32)
            assert rows.indices is not None
            expected[rows.indices[row]] = kept
        elif kind == "contextual":
            length = lengths[position]
            expected = kept.reshape(LAYERS, -1, DIM)
            assert not found[:, length:].any()
            found = found[:, :length]
        elif kind == "tokens":
            expected = kept
            assert not found[lengths[position] :].any()
            found = found[: lengths[position]]
        else:
            expected = kept
        np.testing.assert_array_equal(found, expected)


@settings(deadline=None)
@given(places=st.lists(st.integers(0, 19), min_size=1, max_size=8))
def test_a_batch_is_its_captions_one_by_one(places: list[int], tmp_path_factory: pytest.TempPathFactory) -> None:
    store = write(tmp_path_factory.mktemp("text"), "tokens", random_rows("tokens", 20, seed=2))
    batch = store.gather(places)
    for row, place in enumerate(places):
        alone = store.gather([place])
        assert batch.lengths[row] == alone.lengths[0]
        assert torch.equal(batch.values[row, : batch.lengths[row]], alone.values[0])


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    written = []
    for name in "ab":
        (tmp_path / name).mkdir()
        write(tmp_path / name, "vectors", random_rows("vectors", 30, seed=3))
        written.append((tmp_path / name / "captions.arrow").read_bytes())
    assert written[0] == written[1]


def test_names_the_caption_that_is_missing(tmp_path: Path) -> None:
    store = write(tmp_path, "vectors", random_rows("vectors", 3, seed=4))
    with pytest.raises(ValueError, match="lacks 1 of 2 captions, the first is 8"):
        store.rows([7, 8])


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "vectors", random_rows("vectors", 30, seed=5))
    file = tmp_path / "captions.arrow"
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match="is cut off"):
        TextStore(tmp_path)


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run vectorize_captions"):
        TextStore(tmp_path)


def test_vectors_have_no_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds vectors, no tokens"):
        _ = write(tmp_path, "vectors", random_rows("vectors", 3, seed=6)).vocabulary
