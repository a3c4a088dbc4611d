"""The leaderboard of photographs: valid rows, resumed trainings, and a table of what was trained."""

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from benchmarks import leaderboard_page
from benchmarks.quality import leaderboard_flickr8k as board
from bifocal.models import build_model
from bifocal.registry import build
from components.catalog import configurable_components
from components.train_embedding.spec import TrainEmbeddingParams
from runtime.parameters import validate

ROWS = board.read_rows()
TEXTS = {"TFIDF": "sparse", "Concatenated": "sparse", "Word2Vec": "tokens", "TransformerTokens": "contextual"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_has_valid_parameters_and_its_model_reads_its_text(row: leaderboard_page.Row) -> None:
    params = validate(row.values, configurable_components().values())["train_embedding"]
    assert isinstance(params, TrainEmbeddingParams)
    text = TEXTS[row.values["vectorize_captions"]["vectorizer"]["name"]]
    words = 7 if text == "tokens" else None
    with torch.device("meta"):
        model = build_model(params.model, feature_dim=9, text_dim=6, text_format=text, vocabulary_size=words)
    assert model.image_encoder.dim == row.values["train_embedding"]["model"]["dim"]
    for phase in params.phases:
        build("bifocal.training.batches", phase.batches)
        build("bifocal.losses", phase.loss, sorter=None)


def test_all_rows_have_the_same_features() -> None:
    assert all(row.values["extract_features"] == ROWS[0].values["extract_features"] for row in ROWS)


def test_a_finished_training_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def train(row: leaderboard_page.Row, seed: int, home: Path) -> tuple[dict[str, Path], float]:
        trained.append(seed)
        return {}, 0.5

    monkeypatch.setattr(board, "train", train)
    monkeypatch.setattr(board, "measure", lambda artifacts: {"recall_sum": 300.0})
    assert board.result(ROWS[0], 1, tmp_path, may_train=False) is None
    for _ in range(2):
        assert board.result(ROWS[0], 1, tmp_path, may_train=True) == {"recall_sum": 300.0, "cpu_minutes": 0.5}
    changed = leaderboard_page.Row("systems", ROWS[0].name, "", {**ROWS[0].values, "train_embedding": {}})
    assert board.result(changed, 1, tmp_path, may_train=False) is None
    assert trained == [1]


def test_gains_compare_equal_seeds() -> None:
    results = {
        leaderboard_page.BASELINE: {1: {"recall_sum": 300.0}, 2: {"recall_sum": 310.0}},
        board.PAPERS_TERMS[0]: {2: {"recall_sum": 313.0}, 3: {"recall_sum": 400.0}},
    }
    assert leaderboard_page.gains(results, board.PAPERS_TERMS[0]) == [3.0]
    assert "| +3.0 | +3.0 | +3.0 |" in leaderboard_page.gain_table(ROWS, results)
    assert {leaderboard_page.BASELINE, *board.PAPERS_TERMS} <= {row.name for row in ROWS}


def test_the_page_holds_trained_rows_and_names_the_others() -> None:
    measures: dict[str, Any] = dict.fromkeys(leaderboard_page.MEASURES, 20.0)
    results = {ROWS[0].name: {1: measures, 2: measures | {"recall_sum": 22.0}}}
    published = yaml.safe_load(board.ROWS_FILE.read_text())["published"]
    text = leaderboard_page.page(ROWS, results, published)
    assert f"| {ROWS[0].name} |" in text
    assert "21.0 ± 1.4" in text
    (missing,) = (line for line in text.splitlines() if line.startswith("Not trained yet"))
    assert all(row.name in missing for row in ROWS[1:])
    below = text.partition("## Published elsewhere")[2]
    assert "Not comparable" in below
    assert all(entry["system"] in below for entry in published)
