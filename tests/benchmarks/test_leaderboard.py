"""The leaderboard of scenes: equal searches, resumed trainings, and paired differences."""

import json
import math
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks import scene_systems as systems
from benchmarks.leaderboard_page import scenes
from benchmarks.quality import leaderboard as board
from benchmarks.tuning import (
    Search,
    Training,
    Trial,
    Tuned,
    best_of,
    difference,
    read_search,
    train_at_once,
    tune,
    with_trial,
)
from components.catalog import configurable_components
from runtime.parameters import validate

FILE = yaml.safe_load(board.SEARCH.read_text())
SEARCH = read_search(FILE)


@pytest.mark.parametrize("name", sorted(systems.SYSTEMS))
def test_every_system_has_the_same_number_of_trials_within_its_space(name: str) -> None:
    assert read_search(FILE) == SEARCH
    trials, space = SEARCH.first(name), SEARCH.space_of(name)
    assert (trials[0], len(set(trials)), SEARCH.seeds) == (Trial(), 8, (1, 2, 3))
    for trial in trials:
        assert all(low <= getattr(trial, factor) <= high for factor, (low, high) in space.items())
    assert all((space == SEARCH.space) == (name != "CCA") for _ in trials)
    assert FILE["differs"].keys() == systems.SYSTEMS.keys()


def test_a_best_trial_at_an_edge_gets_more_trials_around_it_and_one_inside_does_not() -> None:
    inside, edge = Trial(1.0, 1.0, 1.0), Trial(2.9, 1.0, 1.0)
    assert SEARCH.second("WSABIE", inside) == []
    more = SEARCH.second("WSABIE", edge)
    assert len(more) == 2
    assert all(0.94 <= trial.learning_rate <= 9.5 and 0.5 <= trial.scale <= 2.0 for trial in more)
    assert SEARCH.left_edges("WSABIE", edge, edge) == []
    assert SEARCH.left_edges("WSABIE", edge, Trial(9.0, 0.51, 1.0)) == ["learning_rate", "scale"]
    assert SEARCH.second("CCA", Trial(regularization=0.011)) != []


def test_the_search_of_cca_changes_ridge_and_power() -> None:
    values = systems.values_of(systems.SYSTEMS["CCA"], [])
    changed = with_trial(values, Trial(regularization=0.5, power=2.0))["train_embedding"][
        "initialization"
    ]
    assert changed == {"name": "CCA", "regularization": 1.0, "power": 2.0}


def test_trials_of_the_wider_space_follow_the_first_trials_and_can_win() -> None:
    """The measure is the learning rate, so the best trial is at the edge."""
    search = replace(SEARCH, trials=16)

    def measure(one: Training, end: float) -> dict[str, Any]:
        return {"recall sum": one.trial.learning_rate}

    tuned = tune("WSABIE", search, measure, math.inf)
    assert len(tuned.validation) == 20
    assert tuned.chosen == max(tuned.validation, key=lambda trial: trial.learning_rate)
    assert tuned.chosen.learning_rate > 3.0
    assert tuned.chosen in search.second("WSABIE", best_of(search.first("WSABIE"), tuned))


@pytest.mark.parametrize("name", sorted({*systems.SYSTEMS} - {"CCA"}))
def test_a_trial_multiplies_the_values_of_the_recipe(name: str) -> None:
    values = systems.values_of(systems.SYSTEMS[name], [])
    before = json.dumps(values)
    changed = with_trial(values, Trial(0.5, 2.0, 2.0))
    assert json.dumps(values) == before
    assert with_trial(values, Trial()) == values
    validate(changed, configurable_components().values())
    (recipe,), (phase,) = values["train_embedding"]["phases"], changed["train_embedding"]["phases"]
    assert phase["learning_rate"] == recipe["learning_rate"] / 2
    assert phase["batches"]["batch_size"] == 2 * recipe["batches"]["batch_size"]
    of_recipe, of_trial = (
        values.get("losses", [values]) for values in (recipe["loss"], phase["loss"])
    )
    for one, other in zip(of_recipe, of_trial, strict=True):
        scaled = {"margin": 2.0, "temperature": 2.0, "sharpness": 0.5}
        assert other == {
            key: value * scaled[key] if key in scaled else value for key, value in one.items()
        }
        assert one != other


def test_the_best_validation_chooses_and_finished_trainings_are_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training and measuring are replaced: this tests the search."""
    trained: list[tuple[float, int]] = []

    def train(name: str, values: Any, home: Path, seed: int) -> tuple[float, float]:
        rate = values["train_embedding"]["phases"][0]["learning_rate"]
        trained.append((rate, seed))
        return rate, 0.5

    monkeypatch.setattr(systems, "DEVICE", "cpu")
    monkeypatch.setattr(systems, "train_values", train)
    monkeypatch.setattr(
        systems, "measure", lambda rate, split, texts: {"recall sum": 100 * rate, "split": split}
    )
    search = replace(SEARCH, trials=3, seeds=(1, 2))
    monkeypatch.setattr(Search, "first", lambda self, name: [Trial(), Trial(2.0), Trial(0.5)])
    measure, clock = partial(systems.measures_of, [], tmp_path), count()
    with monkeypatch.context() as patch:
        patch.setattr(systems.time, "time", lambda: next(clock))
        unfinished = tune("WSABIE", search, measure, 2.0)
    assert (len(unfinished.validation), unfinished.chosen, unfinished.seeds) == (2, None, {})
    for _ in range(2):
        tuned = tune("WSABIE", search, measure, math.inf)
        assert tuned.chosen == Trial(2.0)
        assert tuned.seeds[2] == {
            "recall sum": pytest.approx(0.2),
            "split": "test",
            "minutes": 0.5,
            "device": "CPU",
        }
    assert trained == [(rate, 1) for rate in (0.001, 0.002, 0.0005)] + [(0.002, 1), (0.002, 2)]
    other = partial(systems.measures_of, ["seed=5"], tmp_path)
    assert tune("WSABIE", search, other, -math.inf).validation == {}


@pytest.mark.slow
def test_trainings_at_once_store_their_measures(tmp_path: Path) -> None:
    corpus = [
        f"prepare_dataset.corpus.{split}={images}"
        for split, images in (("train", 24), ("val", 8), ("test", 8))
    ]
    small = [*corpus, "extract_features.weights.epochs=1", "extract_features.weights.min_count=1"]
    trainings = [Training("WSABIE", Trial(), "val", 1), Training("CCA", Trial(), "val", 1)]
    measure = partial(systems.measures_of, small, tmp_path)
    systems.make_inputs(systems.values_of(systems.SYSTEMS["WSABIE"], small), tmp_path)
    train_at_once(trainings, measure, 2, math.inf)
    for training in trainings:
        measures = measure(training, -math.inf)
        assert measures is not None
        assert measures["recall sum"] > 0


def test_differences_are_paired_by_image_and_vary_with_the_seeds() -> None:
    random = np.random.default_rng(0)
    images = 100 * random.random(40)
    first = {seed: images.tolist() for seed in (1, 2, 3)}
    row = {seed: (images + 5).tolist() for seed in (2, 3)}
    assert difference(row, first) == pytest.approx((5.0, 5.0, 5.0))
    found = difference({seed: (images + seed).tolist() for seed in (4, 6)}, first)
    assert found is not None
    assert found[0] == pytest.approx(5.0)
    assert found[1] < 4.0 < 6.0 < found[2]
    assert difference({}, first) is None


def test_page_has_means_differences_and_choices() -> None:
    recalls = {f"{way} R@{k}": 50.0 for way in ("caption", "image") for k in (1, 5, 10)}
    one = recalls | {"recall sum": 300.0, "images": [300.0] * 9, "minutes": 1.0, "device": "CPU"}
    two = recalls | {"recall sum": 290.0, "images": [290.0] * 9, "minutes": 2.0, "device": "CPU"}
    results = {
        "SMILE + InfoNCE": Tuned({Trial(): 299.0}, Trial(), {1: one, 2: two}),
        "BEAN + InfoNCE": Tuned(
            {Trial(): 250.0, Trial(2.0): 280.0}, Trial(2.0), {1: two}, ["scale"]
        ),
        "WSABIE": Tuned({Trial(): 200.0}),
    }
    text = scenes(results, FILE["differs"], {"caption R@1": 0.4})
    lines = [
        line
        for line in text.splitlines()
        if line.startswith(("| SMILE", "| BEAN", "| WSABIE", "| chance"))
    ]
    assert "| 2 | 50.0 ± 0.0 |" in lines[0]
    assert "| 295.0 ± 7.1 | - | - | 1.5 ± 0.7 | - | - |" in lines[0]
    assert "| 290.0 | - | - | 2.0 | SMILE + InfoNCE | -5.0 (" in lines[1]
    assert "| 0.4 | - |" in lines[2]
    assert lines[3:] == [
        "| SMILE + InfoNCE | 1 | 1 | 1 | 1 | 1 | 299.0 | 299.0 | 1 | - |",
        "| BEAN + InfoNCE | 2 | 1 | 1 | 1 | 1 | 250.0 | 280.0 | 2 | scale |",
        "| WSABIE | - | - | - | - | - | 200.0 | - | 1 | - |",
    ]
    assert "Not trained yet: WSABIE." in text
