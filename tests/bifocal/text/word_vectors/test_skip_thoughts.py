"""The word table of skip-thoughts, in the published layout, becomes word vectors that a vectorizer reads."""

from pathlib import Path

import numpy as np
import pytest

from bifocal.text.vectorizers import PretrainedWordVectors
from bifocal.text.word_vectors.skip_thoughts import convert_skip_thoughts

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


def test_matrix_without_objects_is_converted_too(published: tuple[Path, Path], tmp_path: Path) -> None:
    np.save(published[0], np.ones((5, 3), np.float32))
    assert convert_skip_thoughts(*published, tmp_path / "out.npy") == (5, 3)


def test_files_that_do_not_belong_together_are_refused(published: tuple[Path, Path], tmp_path: Path) -> None:
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
