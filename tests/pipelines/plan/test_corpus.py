"""Sizes of corpora that are here, and of published ones."""

from pathlib import Path
from typing import Any

import pytest

from bifocal import registry
from pipelines.plan.corpus import corpus_size, files_to_fetch, published
from runtime import parameters

ROOT = Path(__file__).parents[3]
PAPERS = sorted((ROOT / "recipes/papers").glob("*.yaml"))


def values(corpus: dict[str, Any]) -> dict[str, Any]:
    base = parameters.load(ROOT / "params.yaml")
    return base | {"prepare_dataset": base["prepare_dataset"] | {"corpus": corpus}}


@pytest.mark.parametrize("recipe", PAPERS, ids=lambda path: path.stem)
def test_every_recipe_of_the_papers_has_a_size_and_files_to_fetch(recipe: Path) -> None:
    loaded = parameters.load(ROOT / "params.yaml", [recipe])
    size = corpus_size(loaded)
    assert size.images > 9_000
    assert size.stand_in is not None
    assert all({"name", "url", "folder"} <= file.keys() for file in files_to_fetch(loaded))
    assert list(files_to_fetch(loaded))


@pytest.mark.parametrize(
    ("corpus", "images", "captions"),
    [
        ({"name": "COCO"}, 123_287, 616_435),
        ({"name": "COCO", "restval": False}, 92_783, 463_915),
        (
            {"name": "Combined", "train": {"name": "COCO", "restval": False}, "val": {"name": "ReferIt"}},
            83_783,
            419_915,
        ),
        ({"name": "VisualGenome", "splits": {"train": 80_000, "val": 10_000, "test": 10_000}}, 100_000, 5_000_000),
        ({"name": "MediaEval", "lamem": "lamem"}, 128_741, 0),
        ({"name": "VOC", "train": "trainval", "val": 0.1}, 9_963, 0),
        ({"name": "PrecomputedCaptions", "root": "data/f30k_precomp"}, 31_014, 155_070),
        ({"name": "Scenes", "train": 4, "val": 3, "test": 3}, 10, 50),
    ],
)
def test_published_sizes_follow_the_arguments_of_the_reader(corpus: dict[str, Any], images: int, captions: int) -> None:
    if corpus["name"] not in ("Scenes", "Combined", "PrecomputedCaptions"):
        corpus = {**corpus, "root": "no/such/folder"}
    if corpus["name"] == "Combined":
        corpus = {key: {**part, "root": "no"} if isinstance(part, dict) else part for key, part in corpus.items()}
    size = corpus_size(values(corpus))
    assert (size.images, size.captions) == (images, captions)


def test_corpus_of_this_machine_is_counted(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.jpg").write_bytes(b"not opened here")
    (folder / "captions.csv").write_text("image,caption\n" + "".join(f"{n}.jpg,a dog\n" for n in (0, 0, 1, 2)))
    size = corpus_size(values({"name": "ImageFolder", "root": str(folder)}))
    assert (size.images, size.captions, size.stand_in) == (3, 4, None)


def test_corpus_that_is_neither_here_nor_published_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"ImageFolder: root 'photos' is not a folder of this machine"):
        corpus_size(values({"name": "ImageFolder", "root": "photos"}))


def test_table_names_registered_parts() -> None:
    parts = {
        name
        for package in ("bifocal.datasets.corpora", "bifocal.features.extractors", "bifocal.text.vectorizers")
        for name in registry.registered(package)
    }
    tables = published()
    assert {entry["corpus"] for entry in tables["corpora"]} | {*tables["files"], *tables["stand_ins"]} <= parts
