"""Table of metrics at the end of 'make repro'."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipelines.__main__ import main

RANKS = {"R@1": 98.04, "R@5": 99.0, "median_rank": 1.0}
METRICS = {
    "images": 250,
    "captions": 1250,
    "caption_retrieval": RANKS | {"mAP@R": 91.7},
    "image_retrieval": RANKS | {"R@1": 94.0},
    "reranked": {"caption_retrieval": RANKS | {"R@1": 98.8}, "image_retrieval": RANKS},
    "chance": {"caption_retrieval": RANKS | {"R@1": 0.4}, "image_retrieval": RANKS | {"R@1": 0.4}},
    "pointing": {
        "accuracy": 88.07,
        "low": 85.2,
        "high": 90.8,
        "phrases": 2566,
        "centre": 25.5,
        "random": 12.6,
    },
}


def test_metrics_table_has_a_row_per_direction_and_baseline(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / "metrics"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(json.dumps(METRICS))
    printed = (
        CliRunner()
        .invoke(main, ["metrics", str(tmp_path)], env={"COLUMNS": "160"}, catch_exceptions=False)
        .output
    )
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines()]
    rows = {row[0]: row[1:] for row in cells if row}
    assert rows["caption retrieval"] == ["98.0", "99.0", "1.0"]
    assert rows["caption retrieval, re-ranked"][0] == "98.8"
    assert rows["image retrieval"] == ["94.0", "99.0", "1.0"]
    assert rows["image retrieval, chance"][0] == "0.4"
    assert "pointing: 88.1 % of 2566 phrases (85.2 to 90.8)" in printed
    assert f"{tmp_path.as_posix()}/artifacts/report/index.html" in printed.replace("\n", "")


def test_evaluation_without_retrieval_has_the_table_of_its_summary(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / "metrics"
    folder.mkdir(parents=True)
    (folder / "metrics.json").write_text(
        json.dumps({"semantic": {"NDCG_area": 70.12}, "pointing": METRICS["pointing"]})
    )
    (folder / "summary.json").write_text(json.dumps({"semantic.NDCG_area": 70.12}))
    printed = (
        CliRunner()
        .invoke(main, ["metrics", str(tmp_path)], env={"COLUMNS": "160"}, catch_exceptions=False)
        .output
    )
    assert "semantic.NDCG_area │  70.1" in printed
    assert "pointing: 88.1 %" in printed


def test_metrics_of_a_run_without_evaluation_raise_with_a_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="make repro"):
        CliRunner().invoke(main, ["metrics", str(tmp_path)], catch_exceptions=False)
