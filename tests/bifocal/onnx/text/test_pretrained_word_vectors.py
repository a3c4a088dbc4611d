"""Files of word vectors: files written by gensim, and broken files."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from bifocal.onnx.text.pretrained_word_vectors import BLOCK, read_word_vectors
from bifocal.text.vectorizers import PretrainedWordVectors

WORDS = ["dog", "cat", "café", "UNK", "犬", "unused"]
REQUESTED = ["café", "dog", "UNK", "zebra", "犬"]
DIM = 5
CAPTIONS = ["A dog and a café", "a zebra"]


@pytest.fixture
def keyed() -> KeyedVectors:
    keyed = KeyedVectors(DIM)
    keyed.add_vectors(
        WORDS, np.random.default_rng(0).normal(size=(len(WORDS), DIM)).astype(np.float32)
    )
    return keyed


def write(keyed: KeyedVectors, directory: Path, form: str) -> Path:
    path = (
        directory
        / {"binary": "words.bin", "text": "words.vec", "glove": "glove.txt", "table": "table.npy"}[
            form
        ]
    )
    if form == "table":
        np.save(path, keyed.vectors)
        path.with_suffix(".txt").write_text("\n".join(keyed.index_to_key) + "\n", encoding="utf-8")
    else:
        keyed.save_word2vec_format(path, binary=form == "binary", write_header=form != "glove")
    return path


@pytest.mark.parametrize("block", [1, 7, BLOCK])
@pytest.mark.parametrize("is_packed", [False, True])
@pytest.mark.parametrize("form", ["binary", "text", "glove", "table"])
def test_files_of_gensim_are_read(
    keyed: KeyedVectors,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: str,
    is_packed: bool,
    block: int,
) -> None:
    monkeypatch.setattr("bifocal.onnx.text.pretrained_word_vectors.BLOCK", block)
    path = write(keyed, tmp_path, form)
    if is_packed and form != "table":  # as downloaded: GoogleNews-vectors-negative300.bin.gz
        packed = path.with_name(f"{path.name}.gz")
        packed.write_bytes(gzip.compress(path.read_bytes()))
        path = packed
    file = read_word_vectors(path, REQUESTED)
    assert set(file.vectors) == set(REQUESTED) - {"zebra"}
    assert (file.dim, file.duplicates, file.undecodable) == (DIM, 0, 0)
    for word, vector in file.vectors.items():
        np.testing.assert_allclose(vector, keyed[word], rtol=1e-6)


def test_original_word2vec_binary_is_read(tmp_path: Path) -> None:
    # The original tool ends every vector with a newline, gensim does not.
    path = tmp_path / "words.bin"
    vectors = {b"dog": np.arange(3, dtype=np.float32), b"cat": np.ones(3, np.float32)}
    path.write_bytes(
        b"2 3\n" + b"".join(word + b" " + v.tobytes() + b"\n" for word, v in vectors.items())
    )
    read = read_word_vectors(path, ["dog", "cat"]).vectors
    assert {word: vector.tolist() for word, vector in read.items()} == {
        "dog": [0, 1, 2],
        "cat": [1, 1, 1],
    }


def test_glove_words_may_contain_a_space(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(", 7 8 9\n. . . 1 2 3\ndog 4 5 6\n")
    assert read_word_vectors(path, ["dog"]).vectors["dog"].tolist() == [4, 5, 6]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("glove.txt", b"dog 1 2 3\ncat 1 2\n", "line 2: 2 values, expected 3"),
        ("glove.txt", b"dog 1 2 3\ncat 1 2 3 4\n", "line 2: 4 values, expected 3"),
        ("words.vec", b"2 3\ndog 1 2 3\ncat 1 2 3 4\n", "line 3: 4 values, expected 3"),
        ("glove.txt", b"dog 1 2 x\n", "line 1: could not convert"),
        ("glove.txt", b"dog 1 2 nan\n", "'dog' has a value that is not a finite number"),
        ("glove.txt", b"", "expected a word and its numbers"),
        ("words.vec", b"3 2\ndog 1 2\ncat 1 2\n", "has 2 words, its first line says 3"),
        ("words.bin", b"2 2\ndog " + bytes(8) + b"cat " + bytes(3), "ends after 1 of 2 words"),
        ("words.bin", b"dog 1 2\n", "begins with the numbers V and K"),
        ("words.bin.gz", gzip.compress(b"1 2\ndog " + bytes(8), mtime=0)[:-9], "download it again"),
        ("cc.en.300.bin", bytes.fromhex("ba164f2f0c000000"), r"download the \.vec\.gz"),
        ("table.npy", b"\x93NUMPY", "is truncated or contains pickled objects"),
    ],
)
def test_broken_file_is_named(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    if path.suffix == ".npy":
        path.with_suffix(".txt").write_text("dog\n")
    with pytest.raises(ValueError, match=reason):
        read_word_vectors(path, ["dog"])


def test_matrix_needs_one_row_per_word(tmp_path: Path) -> None:
    np.save(tmp_path / "table.npy", np.zeros((3, 2), np.float32))
    with pytest.raises(FileNotFoundError, match=r"table\.txt"):
        read_word_vectors(tmp_path / "table.npy", ["dog"])
    (tmp_path / "table.txt").write_text("dog\ncat\n")
    with pytest.raises(ValueError, match="expected one row per word"):
        read_word_vectors(tmp_path / "table.npy", ["dog"])


def test_duplicate_and_undecodable_words_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_bytes(b"dog 1 2\ndog 3 4\nd\xf6g 5 6\n")
    file = read_word_vectors(path, ["dog"])
    assert file.vectors["dog"].tolist() == [1, 2]
    assert (file.duplicates, file.undecodable) == (1, 1)


def fit(
    keyed: KeyedVectors, directory: Path, **arguments: object
) -> tuple[PretrainedWordVectors, dict[str, float]]:
    vectorizer = PretrainedWordVectors(path=write(keyed, directory, "text"), **arguments)
    return vectorizer, vectorizer.fit(CAPTIONS, seed=0)


def test_unknown_words_have_the_vector_of_the_file_or_the_mean(
    keyed: KeyedVectors, tmp_path: Path
) -> None:
    for unknown, expected in (
        ("vector", keyed["UNK"]),
        ("mean", (keyed["dog"] + keyed["café"]) / 2),
    ):
        vectorizer, metrics = fit(keyed, tmp_path, unknown=unknown)
        assert metrics["words"] == 2
        assert metrics["words_without_vector"] == 3
        assert not vectorizer.word_vectors.vectors[0].any()
        np.testing.assert_allclose(vectorizer.word_vectors.vectors[1], expected, rtol=1e-5)
        encoded = vectorizer.transform(["a dog"])
        np.testing.assert_allclose(
            vectorizer.word_vectors.vectors[encoded.values[0][1]], keyed["dog"], rtol=1e-6
        )
        assert encoded.counts["unknown_tokens"] == 1


def test_buckets_distinguish_unknown_words(keyed: KeyedVectors, tmp_path: Path) -> None:
    vectorizer, _ = fit(keyed, tmp_path, unknown="bucket", buckets=50)
    encoded = vectorizer.transform(["zebra lion"])
    lion, zebra = vectorizer.word_vectors.vectors[encoded.values[0]]
    assert encoded.counts["unknown_tokens"] == 2
    assert not np.array_equal(lion, zebra)


def test_missing_vectors_are_named(keyed: KeyedVectors, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs path: a file of word vectors"):
        PretrainedWordVectors().fit(CAPTIONS, seed=0)
    with pytest.raises(FileNotFoundError, match="no such file"):
        PretrainedWordVectors(path=tmp_path / "nothing.bin").fit(CAPTIONS, seed=0)
    keyed = KeyedVectors(2)
    keyed.add_vectors(["dog", "perro"], np.ones((2, 2), np.float32))
    with pytest.raises(ValueError, match="no vector for unknown words"):
        fit(keyed, tmp_path, unknown="vector")
    with pytest.raises(ValueError, match="none of the 1 words of the captions"):
        PretrainedWordVectors(path=write(keyed, tmp_path, "text")).fit(["zebra"], seed=0)
