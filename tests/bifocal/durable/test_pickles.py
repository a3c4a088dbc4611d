"""Pickles: allowed names get what stands for them, and nothing else happens."""

import pickle
import subprocess
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bifocal.durable.pickles import _tensor, read_pickle, read_torch_tensors

ROOT = Path(__file__).parents[3]
NAMES = {"collections.OrderedDict": OrderedDict}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=8,
)


class Stored(pickle.Pickler):
    """Pickler that stores bytes outside the pickle."""

    def persistent_id(self, obj: Any) -> Any:
        return ("storage", len(obj)) if isinstance(obj, bytearray) else None


@given(VALUES, st.integers(3, 5))
def test_plain_values_survive(value: Any, protocol: int) -> None:
    assert read_pickle(BytesIO(pickle.dumps(value, protocol)), {}) == value


def test_storages_are_loaded_by_their_ids() -> None:
    file = BytesIO()
    Stored(file).dump(OrderedDict(a=bytearray(b"xyz")))
    file.seek(0)
    assert read_pickle(file, NAMES, lambda pid: pid) == OrderedDict(a=("storage", 3))
    file.seek(0)
    with pytest.raises(ValueError, match="names a storage, which is refused"):
        read_pickle(file, NAMES)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pickle.dumps(print), r"names builtins\.print, which is refused"),
        (pickle.dumps(OrderedDict.fromkeys), r"names builtins\.getattr, which is refused"),
        (b"ccollections\nOrderedDict\n}X\x01\0\0\0aK\x01sb.", "state of a function"),
        (b"\x80\x02N(\x8a", "damaged"),
        (b"\x80\x02Nr\xff\xff\xff\xff", "damaged"),  # an index of 4 billion
        (b"", "damaged"),
    ],
)
def test_others_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_pickle(BytesIO(data), NAMES)


def test_one_module_imports_pickle() -> None:
    command = ["git", "grep", "-lE", r"^\s*(import|from) _?(pickle|dill|joblib|shelve)\b", "--"]
    found = subprocess.run(
        [*command, "bifocal", "runtime", "components", "pipelines"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.split() == ["bifocal/durable/pickles.py"]


SHAPES = st.lists(st.integers(1, 4), max_size=3).map(tuple)


@given(shapes=st.lists(SHAPES, min_size=1, max_size=5), whole=st.booleans())
def test_tensors_of_torch_survive(shapes: list[tuple[int, ...]], whole: bool) -> None:
    kind = torch.int64 if whole else torch.float32
    tensors = ((10 * torch.randn(shape)).to(kind) for shape in shapes)
    state = OrderedDict(
        (f"layer.{number}", tensor.permute(tuple(range(tensor.dim())[::-1])))
        for number, tensor in enumerate(tensors)
    )
    file = BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=False)
    found = read_torch_tensors(file.getvalue())
    assert list(found) == list(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(found[name], tensor.numpy(), strict=True)


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [(0, (3,), (2,)), (3, (2,), (1,)), (-1, (1,), (1,)), (0, (2,), (-1,))],
)
def test_a_tensor_outside_of_its_storage_is_refused(
    offset: int, shape: tuple[int], strides: tuple[int]
) -> None:
    with pytest.raises(ValueError, match="outside of its storage"):
        _tensor(np.zeros(4), offset, shape, strides)
