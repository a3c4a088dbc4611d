"""Pickles of other programs, read by a list of allowed names. Only this module imports
``pickle``."""

import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import IO, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

_Python: Any = pickle._Unpickler
TORCH = {
    "collections.OrderedDict": OrderedDict,
    "torch._utils._rebuild_tensor_v2": lambda *tensor: tensor,
    "torch.FloatStorage": np.dtype("<f4"),
    "torch.LongStorage": np.dtype("<i8"),
}
"""What stands for the names in a state dict."""


class RefusedPickleError(ValueError):
    """A pickle wants more than its reader allows."""


class _Reader(_Python):  # type: ignore[misc]
    """The reader of the standard library in Python: the one in C allocates memory for any index."""

    dispatch: ClassVar[Any] = dict(_Python.dispatch)

    def __init__(
        self, file: IO[bytes], names: Mapping[str, Any], load: Callable[[Any], Any] | None
    ) -> None:
        super().__init__(file, encoding="latin-1")
        self.names, self.load_storage = names, load

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name."""
        if f"{module}.{name}" not in self.names:
            raise RefusedPickleError(f"the pickle names {module}.{name}, which is refused")
        return self.names[f"{module}.{name}"]

    def persistent_load(self, pid: Any) -> Any:
        """Return what the pickle stores outside itself."""
        if self.load_storage is None:
            raise RefusedPickleError("the pickle names a storage, which is refused")
        return self.load_storage(pid)

    def load_build(self) -> None:
        """Set the state of an object, but of no function or class: others use it."""
        if callable(self.stack[-2]):
            raise RefusedPickleError("the pickle sets the state of a function, which is refused")
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build


def read_pickle(
    file: IO[bytes], names: Mapping[str, Any], load: Callable[[Any], Any] | None = None
) -> Any:
    """Return the object of a pickle, without running code from the file.

    Args:
        names: what stands for each name that the pickle may mention, such as a class of the caller.
            A real class is safe only if no call and no state of it can do harm.
        load: returns what the pickle stores outside itself, by its id, such as tensors of torch.

    Raises:
        ValueError: the pickle is damaged, or mentions another name.
    """
    try:
        return _Reader(file, names, load).load()
    except RefusedPickleError:
        raise
    except Exception as error:  # damaged pickles raise any class
        raise ValueError(f"the pickle is damaged: {type(error).__name__} {error}") from error


def read_torch_tensors(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a state dict that torch before version 1.6 has saved."""
    file = BytesIO(content)
    *_, state, keys = (read_pickle(file, TORCH, lambda storage: storage) for _ in range(5))
    types = {storage[2]: storage[1] for storage, *_ in state.values()}
    storages = {}
    for key in keys:
        (count,) = np.frombuffer(file.read(8), "<i8")
        storages[key] = np.frombuffer(file.read(int(count) * types[key].itemsize), types[key])
    return {
        name: _tensor(storages[storage[2]], offset, shape, strides)
        for name, (storage, offset, shape, strides, *_) in state.items()
    }


def _tensor(
    values: NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> NDArray[Any]:
    """Return a tensor of a storage, whose strides are numbers; ``ValueError`` outside of it."""
    last = offset + sum((count - 1) * stride for count, stride in zip(shape, strides, strict=True))
    if min(offset, *shape, *strides, 0) < 0 or (0 not in shape and last >= len(values)):
        raise ValueError("a tensor of the state dict lies outside of its storage")
    steps = [values.itemsize * stride for stride in strides]
    return np.array(np.lib.stride_tricks.as_strided(values[offset:], shape, steps), order="C")
