"""The stage vectorize_captions, from a dataset on disk to the text store."""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from bifocal.text import TextStore, load_vectorizer
from components.spec import Part
from components.vectorize_captions import run as stage
from components.vectorize_captions.spec import VectorizeCaptionsParams

TEXTS = ["a dog runs", "a dog sleeps", "a zebra runs", None, ""]
SPLITS = ["train", "train", "test", "val", "test"]


class FakeDataset(SimpleNamespace):
    """Captions alone, split as ``bifocal.datasets.Dataset`` splits them."""

    def split(self, name: str) -> "FakeDataset":
        rows = [split == name for split in SPLITS]
        return FakeDataset(captions=self.captions[rows])


@pytest.fixture(autouse=True)
def dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    captions = pd.DataFrame({"caption_id": [4, 2, 9, 7, 1], "text": TEXTS})
    monkeypatch.setattr(stage, "read_dataset", lambda directory: FakeDataset(captions=captions))


def params(name: str = "Word2Vec", source: Path | None = None, **arguments: object) -> VectorizeCaptionsParams:
    return VectorizeCaptionsParams(seed=0, vectorizer=Part(name=name, **arguments), source=source)


def test_learns_from_the_training_captions_alone(tmp_path: Path) -> None:
    figures = stage.run(params(dim=4, min_count=1, epochs=1), dataset=tmp_path, text=tmp_path)
    store = TextStore(tmp_path)
    assert set(store.vocabulary.words[2:]) == {"a", "dog", "runs", "sleeps"}
    assert figures["unknown_share"] == pytest.approx(1 / 9)
    assert figures["empty_captions"] == 2
    assert store.caption_ids.tolist() == [4, 2, 9, 7, 1]
    zebra = store.gather(store.rows([9]))
    assert zebra.values.tolist() == [store.vocabulary.encode(["a", "zebra", "runs"])]
    assert load_vectorizer(tmp_path).vectorize(["a zebra runs"]).values.tolist() == zebra.values.tolist()


def test_a_source_goes_to_those_that_read_one(tmp_path: Path) -> None:
    source = tmp_path / "corpus.txt"
    source.write_text("a b c\n" * 5)
    assert stage.build_vectorizer(params(source=source)).source == source
