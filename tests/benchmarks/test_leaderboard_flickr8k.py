"""The leaderboard of photographs: its rows, its search and its page."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import leaderboard_page as pages
from benchmarks import photograph_systems as systems
from benchmarks.quality import leaderboard_flickr8k as board
from benchmarks.tuning import Training, Trial, Tuned
from bifocal.models import build_model
from bifocal.registry import build
from components.catalog import configurable_components
from components.train_embedding.spec import TrainEmbeddingParams
from runtime.parameters import validate

ROWS = systems.read_rows()
TEXTS = {
    "TFIDF": "sparse",
    "Concatenated": "sparse",
    "Word2Vec": "tokens",
    "TransformerTokens": "contextual",
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_valid_parameters_and_its_model_reads_its_text(row: pages.Row) -> None:
    params = validate(row.values, configurable_components().values())["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    text = TEXTS[row.values["vectorize_captions"]["vectorizer"]["name"]]
    words = 7 if text == "tokens" else None
    with torch.device("meta"):
        model = build_model(
            params.model, feature_dim=9, text_dim=6, text_format=text, vocabulary_size=words
        )
    assert model.image_encoder.dim == row.values["train_embedding"]["model"]["dim"]
    for phase in params.phases:
        build("bifocal.training.batches", phase.batches)
        build("bifocal.losses", phase.loss, sorter=None)


def test_all_rows_have_the_same_features() -> None:
    assert all(row.values["extract_features"] == ROWS[0].values["extract_features"] for row in ROWS)


def test_images_of_the_training_list_choose_and_the_dev_list_is_only_measured(
    tmp_path: Path,
) -> None:
    root = tmp_path / "corpus"
    (root / "images").mkdir(parents=True)
    (root / "Flickr_8k.trainImages.txt").write_text("".join(f"{name}.jpg\n" for name in range(20)))
    (root / "Flickr_8k.devImages.txt").write_text("dev.jpg\n")
    (root / "Flickr8k.token.txt").write_text("0.jpg#0\tA dog .\n")
    held = systems.hold_out(root, tmp_path / "held", 12, 5, seed=7)
    lists = (
        (held / f"Flickr_8k.{name}Images.txt").read_text().split()
        for name in ("train", "dev", "test")
    )
    train, chosen, reported = lists
    assert (len(train), len(chosen), len({*train, *chosen})) == (12, 5, 17)
    assert reported == ["dev.jpg"]
    assert "dev.jpg" not in {*train, *chosen}
    assert systems.hold_out(root, held, 12, 5, seed=7) == held


def test_the_search_and_the_reported_training_have_other_datasets_and_equal_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages are replaced: the test checks their inputs."""
    made: list[tuple[str, Any, dict[str, Path]]] = []

    def make(stage: str, values: Any, inputs: dict[str, Path], home: Path) -> Path:
        made.append((stage, copy.deepcopy(values[stage]), inputs))
        path = home / f"{stage}-{len(made) if stage != 'extract_features' else 0}"
        (home / f"{path.name}.seconds").write_text("30.0\n")
        return path

    monkeypatch.setattr(systems, "make", make)
    monkeypatch.setattr(systems, "hold_out", lambda root, folder, *images: folder)
    monkeypatch.setattr(
        systems.scene_systems, "measure", lambda artifacts, split, texts: {"recall sum": 300.0}
    )
    monkeypatch.setattr(systems, "served", lambda artifacts: {"dim": 256.0})
    trial = Training("WSABIE", Trial(2.0), "val", 1)
    for _ in range(2):
        assert systems.measures_of(tmp_path, trial, float("inf")) == {
            "recall sum": 300.0,
            "minutes": 0.5,
        }
    trained = [(values, inputs) for stage, values, inputs in made if stage == "train_embedding"]
    assert len(trained) == 1
    assert trained[0][0]["phases"][0]["learning_rate"] == 0.004
    roots = [values["corpus"]["root"] for stage, values, _ in made if stage == "prepare_dataset"]
    assert roots == [
        ROWS[0].values["prepare_dataset"]["corpus"]["root"],
        str(tmp_path / "held_out-5500-500-7"),
    ]
    reported = Training("WSABIE", Trial(2.0), "test", 1)
    assert systems.measures_of(tmp_path, reported, float("-inf")) is None
    measures = systems.measures_of(tmp_path, reported, float("inf"))
    assert measures == {"recall sum": 300.0, "minutes": 0.5, "dim": 256.0}
    first, second = (inputs for stage, _, inputs in made if stage == "train_embedding")
    assert first["features"] == second["features"]
    assert first["dataset"] != second["dataset"]
    again = [values["corpus"]["root"] for stage, values, _ in made if stage == "prepare_dataset"][
        2:
    ]
    assert again == [roots[0], str(tmp_path / "held_out-5500-500-7")]


def test_gains_compare_equal_seeds() -> None:
    name = board.PAPERS_TERMS[0]
    results = {
        pages.BASELINE: Tuned(seeds={1: {"recall sum": 300.0}, 2: {"recall sum": 310.0}}),
        name: Tuned(seeds={2: {"recall sum": 313.0}, 3: {"recall sum": 400.0}}),
    }
    assert pages.gains(results, name, pages.BASELINE) == [3.0]
    assert "| +3.0 | +3.0 | +3.0 |" in pages.gain_table(results, {name: pages.BASELINE})
    assert {pages.BASELINE, *board.PAPERS_TERMS} <= {row.name for row in ROWS}


def test_the_page_holds_trained_rows_and_names_the_others() -> None:
    measures: dict[str, Any] = dict.fromkeys(pages.PHOTOGRAPHS, 20.0)
    first, second = (
        measures | {"images": [20.0, 20.0]},
        measures | {"recall sum": 22.0, "images": [22.0, 22.0]},
    )
    results = {row.name: Tuned() for row in ROWS}
    results[ROWS[0].name] = Tuned({Trial(): 19.0}, Trial(), {1: first, 2: second})
    text = pages.photographs(ROWS, results)
    assert f"| {ROWS[0].name} |" in text
    assert "21.0 ± 1.4" in text
    (missing,) = (line for line in text.splitlines() if line.startswith("Not trained yet"))
    assert all(row.name in missing for row in ROWS[1:])


def test_a_row_without_a_training_keeps_its_lines_of_the_record() -> None:
    measures: dict[str, Any] = dict.fromkeys(pages.PHOTOGRAPHS, 20.0)
    first, second, third = (row.name for row in ROWS[:3])
    before = {row.name: Tuned() for row in ROWS}
    before[first] = Tuned({Trial(): 19.0}, Trial(), {1: measures})
    before[second] = Tuned({Trial(): 18.0}, Trial(), {1: measures})
    record = pages.photographs(ROWS, before)
    now = {row.name: Tuned() for row in ROWS}
    now[second] = Tuned({Trial(): 30.0}, Trial(), {1: measures | {"recall sum": 31.0}})
    now[third] = Tuned({Trial(): 32.0})
    text = pages.photographs(ROWS, now, record)
    assert f"Measured before this day: {first}.\n" in text
    kept = [line for line in record.splitlines() if line.startswith(f"| {first} |")]
    assert [line for line in text.splitlines() if line.startswith(f"| {first} |")] == kept
    changed = [line for line in text.splitlines() if line.startswith(f"| {second} |")]
    assert len(changed) == len(kept) == 2
    assert "31.0" in changed[0]
    assert "30.0" in changed[1]
    assert f"| {third} |" not in text
    (missing,) = (line for line in text.splitlines() if line.startswith("Not trained yet"))
    assert all((row.name in missing) == (row.name not in (first, second)) for row in ROWS[2:])
