"""Parameters of a pipeline on a sample."""

from pathlib import Path
from typing import Any

import pytest

from components.catalog import configurable_components
from pipelines.plan.corpus import corpus_size
from pipelines.plan.sample import STEPS, sample, stand_ins, work
from runtime import parameters

ROOT = Path(__file__).parents[3]
RECIPES = sorted((ROOT / "recipes").glob("[ps]*/*.yaml"))


def loaded(*recipes: Path) -> dict[str, Any]:
    return parameters.load(ROOT / "params.yaml", recipes)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_sample_of_every_recipe_is_valid(recipe: Path) -> None:
    values = loaded(recipe)
    reduced = sample(values, corpus_size(values), images=60, epochs=2)
    parameters.validate(reduced, configurable_components().values())
    corpus = reduced["prepare_dataset"]["corpus"]
    assert sum(corpus[split] for split in ("train", "val", "test")) == 60
    for phase in reduced["train_embedding"]["phases"]:
        assert phase["epochs"] == 2
        assert not [until for until in phase["frozen_until"].values() if until is not None]


def test_sample_of_the_users_files_is_a_subset(tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("image,caption\n0.jpg,a dog\n")
    (tmp_path / "0.jpg").write_bytes(b"")
    values = loaded(ROOT / "recipes/own/images.yaml")
    values["prepare_dataset"]["corpus"]["root"] = str(tmp_path)
    reduced = sample(values, corpus_size(values), images=60, epochs=1)
    expected = {"name": "Subset", "corpus": values["prepare_dataset"]["corpus"], "images": 60}
    assert reduced["prepare_dataset"]["corpus"] == expected
    parameters.validate(reduced, configurable_components().values())


def test_work_is_proportional_to_captions_epochs_and_steps() -> None:
    values = loaded()
    assert work("vectorize_captions", values, 10, 50) == 50
    assert work("evaluate", values, 10, 50) == 10
    assert work("train_embedding", values, 10, 50) == 8 * 50
    assert work("pretrain_sorter", values, 10, 50) == 0
    trained = loaded(ROOT / "recipes/papers/bean_sodeep_coco.yaml")
    assert work("pretrain_sorter", trained, 10, 50) == trained["pretrain_sorter"]["training"]["epochs"]
    assert work("train_ranking_head", values, 10, 50) == 15 * 10
    values = parameters.merge(values, {"train_embedding": {"members": 3}})
    assert work("train_embedding", values, 10, 50) == 3 * 8 * 50
    mined = loaded(ROOT / "recipes/scenes/semantic.yaml")
    (phase, *_) = mined["train_embedding"]["phases"]
    reduced = sample(mined, corpus_size(mined), images=60, epochs=1)
    assert work("train_embedding", reduced, 10, 50) == STEPS * len(mined["train_embedding"]["phases"])
    assert phase["batches"]["name"] == "MinedTriplets"


def test_parts_without_their_files_are_replaced(tmp_path: Path) -> None:
    values = loaded(ROOT / "recipes/papers/smile_flickr30k.yaml")
    replaced, notes = stand_ins(values, corpus_size(values), tmp_path)
    assert replaced["extract_features"]["extractor"]["model_arguments"]["channels"][-1] == 2048
    assert Path(replaced["extract_features"]["weights"]["path"]).is_file()
    assert replaced["vectorize_captions"]["vectorizer"]["name"] == "Word2Vec"
    assert len(notes) == 4
    reduced = sample(replaced, corpus_size(values), images=60, epochs=1)
    parameters.validate(reduced, configurable_components().values())
