"""Skip-thoughts: pickles of NumPy are read, everything else is refused and nothing executed; tables
are converted."""

import io
import pickle
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from bifocal.text.skip_thoughts import convert_skip_thoughts, read_array_pickle
from bifocal.text.vectorizers import PretrainedWordVectors


def objects(rows: list[NDArray[Any]]) -> NDArray[Any]:
    table = np.empty(len(rows), object)
    table[:] = rows
    return table


def read(data: bytes) -> list[NDArray[Any]]:
    return read_array_pickle(io.BytesIO(data))


@given(
    rows=st.lists(
        arrays.arrays(st.sampled_from(["<f4", "<f8", ">f4", "<f2"]), st.integers(1, 5)), max_size=4
    ),
    protocol=st.integers(2, 4),
)
def test_arrays_survive(rows: list[NDArray[Any]], protocol: int) -> None:
    table = np.empty(len(rows), object)
    for number, row in enumerate(rows):
        table[number] = row
    result = read(pickle.dumps(table, protocol=protocol))
    assert len(result) == len(rows)
    for row, expected in zip(result, rows, strict=True):
        np.testing.assert_array_equal(row, expected)


def test_arrays_that_python_2_wrote() -> None:
    """Python 2 writes bytes as BINSTRING: the opcodes of ``cPickle.dumps(table, 2)``, by hand."""
    reconstruct = b"cnumpy.core.multiarray\n_reconstruct\nq\x00cnumpy\nndarray\nq\x01K\x00\x85U\x01bq\x02\x87R"
    real = b"cnumpy\ndtype\nq\x03U\x02f4K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbq\x05"
    kind = b"h\x03U\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb"
    again = b"h\x00h\x01K\x00\x85h\x02\x87R"
    values = struct.pack("<3f", 1.5, -2.0, 0.25)
    first = reconstruct.replace(
        b"cnumpy.core.multiarray\n_reconstruct\nq\x00cnumpy\nndarray\nq\x01", b"h\x00h\x01"
    )
    first += b"(K\x01K\x03\x85" + real + b"\x89T" + struct.pack("<i", 12) + values + b"tb"
    second = again + b"(K\x01K\x03\x85h\x05\x89T" + struct.pack("<i", 12) + values[::-1] + b"tb"
    data = (
        b"\x80\x02"
        + reconstruct
        + b"(K\x01K\x02\x85"
        + kind.replace(b"h\x03", b"cnumpy\ndtype\nq\x03", 1)
    )
    data += b"\x89]q\x06(" + first + second + b"etb."
    result = read(data)
    assert result[0].tolist() == [1.5, -2.0, 0.25]
    assert result[1].tobytes() == values[::-1]


class Runs:
    """An object whose pickle calls a function when it is loaded."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.call


ATTACKS: dict[str, bytes] = {
    "a call": pickle.dumps(Runs(subprocess.run, "touch pwned")),
    "a call of protocol 2": pickle.dumps(Runs(eval, "1/0"), protocol=2),
    "a call in an array": pickle.dumps(objects([np.zeros(2), Runs(eval, "1/0")]), protocol=4),
    "another function of NumPy": b"\x80\x02cnumpy\nfromfile\nU\x01x\x85R.",
    "a name in a module of NumPy": b"\x80\x02cnumpy.core.multiarray\nfromfile\nU\x01x\x85R.",
    "a dotted name": b"\x80\x04\x8c\x05numpy\x94\x8c\x0fndarray.tofile.\x94\x93.",
    "a name as bytes": b"\x80\x04C\x05numpyC\x07ndarray\x93.",
    "INST": b"(S'echo'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nU\x04echoo.",
    "NEWOBJ": b"\x80\x02cnumpy\nndarray\nK\x05\x85\x81.",
    "NEWOBJ_EX": b"\x80\x04cnumpy\nndarray\n)}\x92.",
    "PERSID": b"Pname\n.",
    "BINPERSID": b"U\x01xQ.",
    "EXT1": b"\x82\x01.",
    "a dictionary": pickle.dumps({"a": np.zeros(2)}),
    "ndarray called": b"\x80\x02cnumpy\nndarray\nK\x05\x85R.",
    "another class": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\ndtype\nK\x00\x85U\x01b\x87R.",
    "another codec": b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00xX\x05\x00\x00\x00rot13\x86R.",
    "the state of a list": b"\x80\x02]K\x01b.",
    "items added to a tuple": b"\x80\x02)K\x01a.",
    "protocol 0": pickle.dumps([1.5], protocol=0),
    "out-of-band buffers": pickle.dumps(objects([np.zeros(2)]), protocol=5).replace(
        b"_reconstruct", b"_frombuffer\x20"
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_other_opcodes_and_names_are_refused(attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("loads", "load", "Unpickler"):  # the reader in C
        monkeypatch.setattr(pickle, name, lambda *_: pytest.fail("unpickled"))
    with pytest.raises(ValueError, match=r"refused|damaged|no array"):
        read(ATTACKS[attack])


VALID = pickle.dumps(objects([np.arange(3, dtype=np.float32), np.ones(3, np.float32)]), protocol=2)


@given(st.integers(0, len(VALID) - 1), st.binary(max_size=3), st.integers(0, 4))
def test_damaged_pickle_is_read_as_arrays_or_refused(
    position: int, inserted: bytes, removed: int
) -> None:
    try:
        result = read(VALID[:position] + inserted + VALID[position + removed :])
    except ValueError:
        return
    assert all(isinstance(row, np.ndarray) and row.dtype.kind == "f" for row in result)


@given(st.binary(max_size=60))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(b"\x80\x02" + data)


@pytest.mark.parametrize("end", [0, 1, len(VALID) // 2, len(VALID) - 1])
def test_truncated_pickle_is_refused(end: int) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(VALID[:end])


WORDS = ("a", "dog", "UNK", "café", "odd\rword")


@pytest.fixture
def published(tmp_path: Path) -> tuple[Path, Path]:
    """``utable.npy``, an object array of vectors, and ``dictionary.txt``."""
    table = np.empty(len(WORDS), object)
    table[:] = list(np.arange(20, dtype=np.float32).reshape(len(WORDS), 4))
    np.save(tmp_path / "utable.npy", table, allow_pickle=True)
    (tmp_path / "dictionary.txt").write_bytes("".join(f"{word}\n" for word in WORDS).encode())
    return tmp_path / "utable.npy", tmp_path / "dictionary.txt"


def test_vectorizer_reads_the_converted_table(published: tuple[Path, Path], tmp_path: Path) -> None:
    target = tmp_path / "out" / "skip_thoughts.npy"
    assert convert_skip_thoughts(*published, target) == (5, 4)
    vectorizer = PretrainedWordVectors(path=target, unknown="vector")
    assert vectorizer.fit(["a dog", "a café zebra"], seed=0)["words_without_vector"] == 1
    (ids,) = vectorizer.transform(["dog café zebra"]).values
    np.testing.assert_array_equal(
        vectorizer.word_vectors.vectors[ids], [[4, 5, 6, 7], [12, 13, 14, 15], [8, 9, 10, 11]]
    )


def test_matrix_without_objects_is_converted_too(
    published: tuple[Path, Path], tmp_path: Path
) -> None:
    np.save(published[0], np.ones((5, 3), np.float32))
    assert convert_skip_thoughts(*published, tmp_path / "out.npy") == (5, 3)


def test_files_that_do_not_belong_together_are_refused(
    published: tuple[Path, Path], tmp_path: Path
) -> None:
    published[1].write_text("a\ndog\n")
    with pytest.raises(ValueError, match=r"5 vectors of \[4\] dimensions, .* has 2 words"):
        convert_skip_thoughts(*published, tmp_path / "out.npy")
    with pytest.raises(ValueError, match=r"out\.txt must end with \.npy"):
        convert_skip_thoughts(*published, tmp_path / "out.txt")


def test_table_with_code_names_the_file(published: tuple[Path, Path], tmp_path: Path) -> None:
    table = np.empty(5, object)
    table[:] = [np.zeros(4), np.zeros(4), np.zeros(4), np.zeros(4), print]
    np.save(published[0], table, allow_pickle=True)
    with pytest.raises(ValueError, match=r"utable\.npy: the pickle names builtins\.print"):
        convert_skip_thoughts(*published, tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()
