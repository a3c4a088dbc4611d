"""Loaders against files that gensim wrote, and against broken ones."""

from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from bifocal.text.vectorizers import PretrainedWordVectors
from bifocal.text.word_vectors.files import read_word_file

WORDS = ["dog", "cat", "café", "UNK", "犬", "unused"]
WANTED = ["café", "dog", "UNK", "zebra", "犬"]
DIM = 5


@pytest.fixture
def keyed() -> KeyedVectors:
    keyed = KeyedVectors(DIM)
    keyed.add_vectors(WORDS, np.random.default_rng(0).normal(size=(len(WORDS), DIM)).astype(np.float32))
    return keyed


def write(keyed: KeyedVectors, directory: Path, form: str) -> Path:
    path = directory / {"binary": "words.bin", "text": "words.vec", "glove": "glove.txt", "table": "table.npy"}[form]
    if form == "table":
        np.save(path, keyed.vectors)
        path.with_suffix(".txt").write_text("\n".join(keyed.index_to_key) + "\n", encoding="utf-8")
    else:
        keyed.save_word2vec_format(path, binary=form == "binary", write_header=form != "glove")
    return path


@pytest.mark.parametrize("form", ["binary", "text", "glove", "table"])
def test_reads_what_gensim_wrote(keyed: KeyedVectors, tmp_path: Path, form: str) -> None:
    found = read_word_file(write(keyed, tmp_path, form), WANTED)
    assert set(found.vectors) == set(WANTED) - {"zebra"}
    assert (found.dim, found.duplicates, found.undecodable) == (DIM, 0, 0)
    for word, vector in found.vectors.items():
        np.testing.assert_allclose(vector, keyed[word], rtol=1e-6)


def test_reads_original_word2vec_binaries(tmp_path: Path) -> None:
    # The original tool ends every vector with a newline, gensim does not.
    path = tmp_path / "words.bin"
    vectors = {b"dog": np.arange(3, dtype=np.float32), b"cat": np.ones(3, np.float32)}
    path.write_bytes(b"2 3\n" + b"".join(word + b" " + v.tobytes() + b"\n" for word, v in vectors.items()))
    found = read_word_file(path, ["dog", "cat"]).vectors
    assert {word: vector.tolist() for word, vector in found.items()} == {"dog": [0, 1, 2], "cat": [1, 1, 1]}


def test_glove_words_may_hold_a_space(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(", 7 8 9\n. . . 1 2 3\ndog 4 5 6\n")
    assert read_word_file(path, ["dog"]).vectors["dog"].tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("glove.txt", b"dog 1 2 3\ncat 1 2\n", "line 2: 2 values, expected 3"),
        ("glove.txt", b"dog 1 2 3\ncat 1 2 3 4\n", "line 2: 4 values, expected 3"),
        ("words.vec", b"2 3\ndog 1 2 3\ncat 1 2 3 4\n", "line 3: 4 values, expected 3"),
        ("glove.txt", b"dog 1 2 x\n", "line 1: could not convert"),
        ("glove.txt", b"dog 1 2 nan\n", "'dog' holds a value that is no finite number"),
        ("glove.txt", b"", "expected a word and its numbers"),
        ("words.vec", b"3 2\ndog 1 2\ncat 1 2\n", "has 2 words, its first line says 3"),
        ("words.bin", b"2 2\ndog " + bytes(8) + b"cat " + bytes(3), "ends after 1 of 2 words"),
        ("words.bin", b"dog 1 2\n", "begins with its two sizes"),
        ("table.npy", b"\x93NUMPY", "cut off, or no plain table"),
    ],
)
def test_says_what_is_wrong_with_a_file(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    if path.suffix == ".npy":
        path.with_suffix(".txt").write_text("dog\n")
    with pytest.raises(ValueError, match=reason):
        read_word_file(path, ["dog"])


def test_a_table_and_its_words_must_agree(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.zeros((3, 2), np.float32))
    with pytest.raises(FileNotFoundError, match=r"table\.txt"):
        read_word_file(tmp_path / "table.npy", ["dog"])
    (tmp_path / "table.txt").write_text("dog\ncat\n")
    with pytest.raises(ValueError, match="expected one row for each"):
        read_word_file(tmp_path / "table.npy", ["dog"])


def test_repeated_and_broken_words_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_bytes(b"dog 1 2\ndog 3 4\nd\xf6g 5 6\n")
    found = read_word_file(path, ["dog"])
    assert found.vectors["dog"].tolist() == [1, 2]
    assert (found.duplicates, found.undecodable) == (1, 1)


CAPTIONS = ["A dog and a café", "a zebra"]


def fit(keyed: KeyedVectors, directory: Path, **arguments: object) -> tuple[PretrainedWordVectors, dict[str, float]]:
    vectorizer = PretrainedWordVectors(path=write(keyed, directory, "text"), **arguments)
    return vectorizer, vectorizer.fit(CAPTIONS, seed=0)


def test_unknown_words_take_the_file_s_own_vector_or_the_mean(keyed: KeyedVectors, tmp_path: Path) -> None:
    for unknown, expected in (("vector", keyed["UNK"]), ("mean", (keyed["dog"] + keyed["café"]) / 2)):
        vectorizer, figures = fit(keyed, tmp_path, unknown=unknown)
        assert figures["words"] == 2
        assert figures["words_without_vector"] == 3
        assert not vectorizer.table.vectors[0].any()
        np.testing.assert_allclose(vectorizer.table.vectors[1], expected, rtol=1e-5)
        rows = vectorizer.rows(["a dog"])
        np.testing.assert_allclose(vectorizer.table.vectors[rows.values[0][1]], keyed["dog"], rtol=1e-6)
        assert rows.counts["unknown_tokens"] == 1


def test_buckets_keep_unknown_words_apart(keyed: KeyedVectors, tmp_path: Path) -> None:
    vectorizer, _ = fit(keyed, tmp_path, unknown="bucket", buckets=50)
    rows = vectorizer.rows(["zebra lion"])
    lion, zebra = vectorizer.table.vectors[rows.values[0]]
    assert rows.counts["unknown_tokens"] == 2
    assert not np.array_equal(lion, zebra)


def test_says_what_is_missing(keyed: KeyedVectors, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="set path"):
        PretrainedWordVectors().fit(CAPTIONS, seed=0)
    with pytest.raises(FileNotFoundError, match="no such file"):
        PretrainedWordVectors(path=tmp_path / "nothing.bin").fit(CAPTIONS, seed=0)
    keyed = KeyedVectors(2)
    keyed.add_vectors(["dog", "perro"], np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match="no vector for unknown words"):
        fit(keyed, tmp_path, unknown="vector")
    with pytest.raises(ValueError, match="none of the captions' 1 words"):
        PretrainedWordVectors(path=write(keyed, tmp_path, "text")).fit(["zebra"], seed=0)
