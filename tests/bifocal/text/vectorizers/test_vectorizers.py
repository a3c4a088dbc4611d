"""What holds for every vectorizer: new sentences are read as the store has them; same seed, same bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bifocal.text import TextStore
from bifocal.text.tokens import MAX_TOKENS
from bifocal.text.vectorizers import TFIDF, ElmoLayers, FisherVectors, MeanWordVectors, PretrainedWordVectors, Word2Vec
from bifocal.text.vectorizers.base import Vectorizer, load_vectorizer, write_text

TRAINING = [
    "A brown dog runs over the green grass.",
    "Two dogs run over grass; one dog is brown.",
    "A man rides a red bicycle down the street.",
    "The man on the bicycle wears a red helmet.",
    "A girl throws a ball to her dog.",
    "Children play with a ball on the grass.",
] * 3
ABSURD = ["", "...", "word " * 10_000, "собака бежит по траве", "犬が走る", "🐕", "xyzzy"]
CAPTIONS = [*TRAINING[:6], *ABSURD, "a dog on the street"]

VECTORS = "dog 1 2 3\ngrass 2 3 4\nred 0 0 1\na 0 1 0\nunk 1 1 1\n"


VECTORIZERS: dict[str, Callable[[Path], Vectorizer]] = {
    "skip-gram": lambda path: Word2Vec(dim=8, min_count=2, epochs=2),
    "cbow": lambda path: Word2Vec(dim=8, min_count=2, epochs=2, algorithm="cbow"),
    "loaded words": lambda path: PretrainedWordVectors(path=path, unknown="bucket", buckets=5),
    "elmo": lambda path: ElmoLayers(projection_dim=4, lstm_dim=6, filters=((1, 3), (2, 4)), epochs=1, batch_size=8),
    "tf-idf": lambda path: TFIDF(),
    "mean": lambda path: MeanWordVectors(dim=8, epochs=1),
    "mean of loaded words": lambda path: MeanWordVectors(path=path),
    "hglmm": lambda path: FisherVectors(dim=6, centres=3, components=10, epochs=1, iterations=3),
    "gmm": lambda path: FisherVectors(dim=6, mixture="gmm", centres=3, components=10, epochs=1, iterations=3),
}


def write(name: str, directory: Path, seed: int = 0) -> dict[str, float]:
    directory.mkdir()
    path = directory.with_suffix(".vec")
    path.write_text(VECTORS)
    vectorizer = VECTORIZERS[name](path)
    learnt = vectorizer.fit(TRAINING, seed)
    return learnt | write_text(directory, vectorizer, list(range(len(CAPTIONS))), CAPTIONS)


@pytest.mark.parametrize("name", VECTORIZERS)
def test_new_sentences_are_read_as_the_store_has_them(name: str, tmp_path: Path) -> None:
    write(name, tmp_path / "text")
    store, reader = TextStore(tmp_path / "text"), load_vectorizer(tmp_path / "text")
    everything, again = store.gather(range(len(CAPTIONS))), reader.vectorize(CAPTIONS)
    assert torch.equal(everything.values, again.values)
    assert torch.equal(everything.lengths, again.lengths)
    assert torch.isfinite(everything.values.float()).all()
    for row, caption in enumerate(CAPTIONS):
        alone = reader.vectorize([caption])
        torch.testing.assert_close(store.gather([row]).values, alone.values, atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("name", VECTORIZERS)
def test_the_same_seed_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    for folder in ("once", "again"):
        write(name, tmp_path / folder, seed=3)
    names = sorted(path.name for path in (tmp_path / "once").iterdir())
    for file in names:
        assert (tmp_path / "once" / file).read_bytes() == (tmp_path / "again" / file).read_bytes(), file


@pytest.mark.parametrize("name", ["skip-gram"])
def test_absurd_captions_are_counted(name: str, tmp_path: Path) -> None:
    figures = write(name, tmp_path / "text")
    assert figures["captions"] == len(CAPTIONS)
    assert figures["empty_captions"] == 3
    assert figures["truncated_captions"] == 1
    lengths = TextStore(tmp_path / "text").gather(range(len(CAPTIONS))).lengths
    assert lengths.min() == 1
    assert lengths.max() == MAX_TOKENS


def test_unknown_words_are_counted(tmp_path: Path) -> None:
    vectorizer = Word2Vec(dim=8, min_count=3, epochs=1)
    vectorizer.fit(["a dog"] * 3 + ["one cat"], seed=0)
    figures = write_text(tmp_path, vectorizer, [5, 6], ["a cat", "the dog"])
    assert figures["unknown_share"] == 0.5
    store = TextStore(tmp_path)
    unknown = store.gather([0]).values[0, 1]
    assert unknown == 1
    torch.testing.assert_close(store.word_vectors[1], store.word_vectors[2:].mean(dim=0))
    assert not store.word_vectors[0].any()


def test_words_that_share_company_are_close() -> None:
    sentences = [f"the {animal} eats food" for animal in ("dog", "cat")] * 60
    sentences += [f"we drive a {car} there" for car in ("bus", "truck")] * 60
    vectorizer = Word2Vec(dim=16, epochs=20, subsample=0)
    vectorizer.fit(sentences, seed=0)
    table = vectorizer.table
    dog, cat, bus = (torch.from_numpy(table.vectors[i]) for i in table.vocabulary.encode(["dog", "cat", "bus"]))
    assert torch.cosine_similarity(dog, cat, dim=0) > torch.cosine_similarity(dog, bus, dim=0)


def test_too_little_text_is_said() -> None:
    with pytest.raises(ValueError, match="no word occurs 5 times in 1 sentences"):
        Word2Vec().fit(["a dog"], seed=0)


def test_trains_on_a_file_of_the_user_s(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("ein Hund läuft\n" * 5, encoding="utf-8")
    vectorizer = Word2Vec(dim=4, epochs=1, path=path)
    vectorizer.fit(TRAINING, seed=0)
    assert set(vectorizer.table.vocabulary.words[2:]) == {"ein", "hund", "läuft"}
    path.write_bytes(b"ein Hund\nl\xe4uft\n")
    with pytest.raises(ValueError, match="line 2: not UTF-8"):
        vectorizer.fit(TRAINING, seed=0)


def test_a_folder_without_vectorizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run vectorize_captions"):
        load_vectorizer(tmp_path)
