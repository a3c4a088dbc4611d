"""Stage vectorize_captions, from a dataset on disk to the text store."""

import json
from pathlib import Path

import pytest

from bifocal.datasets.tables import CAPTIONS, IMAGES, PHRASES, write_table
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer
from components.vectorize_captions import run as stage
from components.vectorize_captions.spec import COMPONENT, VectorizeCaptionsParams
from runtime.spec import ClassRef

# caption_id, split of its image, text
ROWS = [
    (4, "train", "a dog runs"),
    (2, "train", "a dog sleeps"),
    (9, "test", "a zebra runs"),
    (7, "val", " "),
    (1, "test", ""),
]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "dataset"
    folder.mkdir()
    image = {"path": None, "width": 0, "height": 0, "sha256": None}
    write_table(
        folder / "images.parquet",
        IMAGES,
        [{"image_id": str(n), "split": split, **image} for n, split, _ in ROWS],
    )
    captions = [
        {"caption_id": number, "image_id": str(number), "text": text} for number, _, text in ROWS
    ]
    write_table(folder / "captions.parquet", CAPTIONS, captions)
    write_table(folder / "phrases.parquet", PHRASES, [])
    (folder / "dataset.json").write_text(json.dumps({"corpus": "test", "image_root": "images"}))
    return folder


def params(name: str = "Word2Vec", **arguments: object) -> VectorizeCaptionsParams:
    return VectorizeCaptionsParams(seed=0, vectorizer=ClassRef(name=name, **arguments))


def test_vectorizer_is_fitted_on_the_training_captions(dataset: Path, tmp_path: Path) -> None:
    metrics = stage.run(params(dim=4, min_count=1, epochs=1), dataset=dataset, text=tmp_path)
    store = TextStore(tmp_path)
    assert set(store.vocabulary.words[2:]) == {"a", "dog", "runs", "sleeps"}
    assert metrics["unknown_share"] == pytest.approx(1 / 9)
    assert metrics["empty_captions"] == 2
    assert store.caption_ids.tolist() == [4, 2, 9, 7, 1]
    zebra = store.gather(store.rows([9]))
    assert zebra.values.tolist() == [store.vocabulary.encode(["a", "zebra", "runs"])]
    assert (
        load_vectorizer(tmp_path).vectorize(["a zebra runs"]).values.tolist()
        == zebra.values.tolist()
    )


def test_path_of_params_reaches_the_vectorizer(dataset: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("x y z\n" * 5)
    stage.run(params(dim=4, epochs=1, path=str(corpus)), dataset=dataset, text=tmp_path)
    assert set(TextStore(tmp_path).vocabulary.words[2:]) == {"x", "y", "z"}


def test_path_is_a_user_path() -> None:
    section = {"vectorizer": {"name": "PretrainedWordVectors", "path": "data/glove.txt"}}
    assert COMPONENT.user_paths(section) == {("vectorizer", "path"): "data/glove.txt"}
