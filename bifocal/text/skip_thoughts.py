"""Converter for skip-thoughts' word table: a pickled object array and word list to a matrix and a
word list."""

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

NUMBERS = ("f2", "f4", "f8")
"""Types of the numbers that an array may hold; "O" holds a list of arrays."""
_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")


class _Name(Enum):
    """The only names that a pickle may mention. They are never imported: each is a rule of this
    module."""

    RECONSTRUCT = "_reconstruct"
    ARRAY = "ndarray"
    TYPE = "dtype"
    ENCODE = "encode"


_NAMES = {
    **{(module, "_reconstruct"): _Name.RECONSTRUCT for module in _MODULES},
    ("numpy", "ndarray"): _Name.ARRAY,
    ("numpy", "dtype"): _Name.TYPE,
    ("_codecs", "encode"): _Name.ENCODE,
}


@dataclass
class _Type:
    kind: str
    order: str = "="


@dataclass
class _Array:
    """An array; ``values`` is None until its state has been read."""

    values: NDArray[Any] | list[Any] | None = None


class _Mark:
    """Where a tuple or the items of a list begin on the stack."""


_MARK = _Mark()


def read_array_pickle(file: IO[bytes]) -> list[NDArray[Any]]:
    """Return the number arrays in a pickled NumPy object array, without running code from the
    file."""
    try:
        result = _Machine().run(file)
    except (
        IndexError,
        KeyError,
        TypeError,
        OverflowError,
        MemoryError,
        AttributeError,
        StopIteration,
    ) as error:
        raise ValueError(f"the pickle is damaged: {type(error).__name__} {error}") from error
    if not isinstance(result, _Array) or not isinstance(result.values, list):
        raise ValueError("the pickle holds no array of objects")
    rows = [row.values if isinstance(row, _Array) else None for row in result.values]
    arrays = [row for row in rows if isinstance(row, np.ndarray)]
    if len(arrays) != len(rows):
        raise ValueError("the pickled array holds other objects than arrays of numbers")
    return arrays


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self, file: IO[bytes]) -> Any:
        for opcode, argument, position in pickletools.genops(file):
            if opcode.name == "STOP":
                return self.stack.pop()
            action = _ACTIONS.get(opcode.name)
            if action is None:
                raise ValueError(
                    f"the pickle has the opcode {opcode.name} at byte {position}, which is refused"
                )
            action(self, argument)
        raise ValueError("the pickle has no end")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop_to_mark(self) -> list[Any]:
        start = (
            len(self.stack)
            - 1
            - next(n for n, value in enumerate(reversed(self.stack)) if value is _MARK)
        )
        values = self.stack[start + 1 :]
        del self.stack[start:]
        return values

    def push_tuple(self, length: int) -> None:
        values = tuple(self.stack[-length:])
        if len(values) < length or _MARK in values:
            raise ValueError("the pickle is damaged: a tuple is too short")
        del self.stack[-length:]
        self.push(values)

    def append(self, values: list[Any]) -> None:
        if type(self.stack[-1]) is not list:
            raise ValueError(
                f"the pickle appends to a {type(self.stack[-1]).__name__}, which is refused"
            )
        self.stack[-1].extend(values)

    def name(self, module: Any, name: Any) -> None:
        if not (isinstance(module, str) and isinstance(name, str)) or (module, name) not in _NAMES:
            raise ValueError(
                f"the pickle names {module}.{name}, which is not part of an array: it is refused"
            )
        self.push(_NAMES[module, name])

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.name(module, name)

    def reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        match function, arguments:
            case _Name.RECONSTRUCT, (_Name.ARRAY, (0,), b"b" | "b"):
                self.push(_Array())
            case _Name.TYPE, (str() | bytes() as kind, 0 | False, 1 | True):
                self.push(_Type(_text(kind)))
            case _Name.ENCODE, (str() as text, "latin1"):
                self.push(text.encode("latin-1"))
            case _:
                raise ValueError(
                    "the pickle calls a function with arguments that build no array: it is refused"
                )

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        match target, state:
            case _Type(), (_, str() | bytes() as order, None, None, None, int(), int(), int()):
                target.order = _text(order)
            case _Array(values=None), (
                _,
                tuple() as shape,
                _Type() as kind,
                bool() | int() as fortran,
                data,
            ):
                target.values = _values(shape, kind, bool(fortran), data)
            case _:
                raise ValueError(
                    f"the pickle sets the state of a {type(target).__name__}, which is refused"
                )


def _values(
    shape: tuple[Any, ...], kind: _Type, fortran: bool, data: Any
) -> NDArray[Any] | list[Any]:
    """Return the numbers of an array, or the list of its objects."""
    count = int(np.prod(shape, dtype=object))
    if kind.kind in ("O", "O4", "O8"):
        if type(data) is not list or len(shape) != 1 or len(data) != count:
            raise ValueError(
                f"the pickle is damaged: an array of {count} objects has other contents"
            )
        return data
    if kind.kind not in NUMBERS or kind.order not in ("<", ">", "=", "|"):
        raise ValueError(
            f"the pickle has an array of type {kind.kind!r}, expected one of {', '.join(NUMBERS)}"
        )
    raw = data.encode("latin-1") if isinstance(data, str) else data
    dtype = np.dtype(kind.order.replace("|", "=") + kind.kind)
    if (
        not isinstance(raw, bytes)
        or len(raw) != count * dtype.itemsize
        or min(shape, default=0) < 0
    ):
        raise ValueError(f"the pickle is damaged: an array of shape {shape} has other contents")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if fortran else "C")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("ascii")


_Action = Callable[[_Machine, Any], None]
_PUSH_ARGUMENT: _Action = _Machine.push
_PUSHED = (
    "BININT BININT1 BININT2 LONG1 BINUNICODE SHORT_BINUNICODE BINUNICODE8 BINBYTES "
    "SHORT_BINBYTES BINBYTES8"
)
_ACTIONS: dict[str, _Action] = {
    **dict.fromkeys(_PUSHED.split(), _PUSH_ARGUMENT),
    # Python 2's strings are bytes; pickletools decodes them.
    **dict.fromkeys(
        ("BINSTRING", "SHORT_BINSTRING"), lambda machine, text: machine.push(text.encode("latin-1"))
    ),
    **dict.fromkeys(("PROTO", "FRAME"), lambda machine, argument: None),
    "NONE": lambda machine, argument: machine.push(None),
    "NEWTRUE": lambda machine, argument: machine.push(True),
    "NEWFALSE": lambda machine, argument: machine.push(False),
    "MARK": lambda machine, argument: machine.push(_MARK),
    "EMPTY_TUPLE": lambda machine, argument: machine.push(()),
    "TUPLE1": lambda machine, argument: machine.push_tuple(1),
    "TUPLE2": lambda machine, argument: machine.push_tuple(2),
    "TUPLE3": lambda machine, argument: machine.push_tuple(3),
    "TUPLE": lambda machine, argument: machine.push(tuple(machine.pop_to_mark())),
    "EMPTY_LIST": lambda machine, argument: machine.push([]),
    "APPEND": lambda machine, argument: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, argument: machine.append(machine.pop_to_mark()),
    **dict.fromkeys(
        ("BINPUT", "LONG_BINPUT"),
        lambda machine, index: machine.memo.__setitem__(index, machine.stack[-1]),
    ),
    "MEMOIZE": lambda machine, argument: machine.memo.__setitem__(
        len(machine.memo), machine.stack[-1]
    ),
    **dict.fromkeys(
        ("BINGET", "LONG_BINGET"), lambda machine, index: machine.push(machine.memo[index])
    ),
    "GLOBAL": lambda machine, argument: machine.name(*argument.split(" ", 1)),
    "STACK_GLOBAL": lambda machine, argument: machine.stack_global(),
    "REDUCE": lambda machine, argument: machine.reduce(),
    "BUILD": lambda machine, argument: machine.build(),
}


BLOCK = 4096
"""Rows that are written at once."""


def convert_skip_thoughts(table: Path, dictionary: Path, target: Path) -> tuple[int, int]:
    """Write ``target`` (.npy) and its word list (.txt) for ``PretrainedWordVectors``; return their
    shape (V, K).

    ``table`` is ``utable.npy`` or ``btable.npy`` of Kiros et al., NIPS 2015; ``dictionary.txt`` has
    a word per line.
    """
    if target.suffix != ".npy":
        raise ValueError(f"{target} must end with .npy: its words are written beside it as .txt")
    words = [line.strip() for line in dictionary.read_bytes().split(b"\n")]
    if words and not words[-1]:
        words.pop()
    with table.open("rb") as file:
        try:
            rows = _read_rows(file)
        except ValueError as error:
            raise ValueError(f"{table}: {error}") from error
    dims = {row.size for row in rows}
    if len(rows) != len(words) or len(dims) != 1:
        raise ValueError(
            f"{table} has {len(rows)} vectors of {sorted(dims)[:3]} dimensions, {dictionary} "
            f"has {len(words)} words: expected one vector per word, all of one dimension"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    matrix = np.lib.format.open_memmap(target, "w+", np.float32, (len(rows), rows[0].size))
    remaining, start = iter(rows), 0
    while block := [row.ravel() for row in islice(remaining, BLOCK)]:
        matrix[start : start + len(block)] = block
        start += len(block)
    matrix.flush()
    # A carriage return would end the line of a word.
    target.with_suffix(".txt").write_bytes(
        b"".join(word.replace(b"\r", b" ") + b"\n" for word in words)
    )
    return matrix.shape[0], matrix.shape[1]


def _read_rows(file: IO[bytes]) -> list[NDArray[Any]]:
    version = np.lib.format.read_magic(file)
    read_header = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(file)
    if not dtype.hasobject:
        file.seek(0)
        return list(np.load(file, allow_pickle=False))
    rows = read_array_pickle(file)
    if shape != (len(rows),):
        raise ValueError(f"the header says {shape}, the pickle holds {len(rows)} vectors")
    return rows
