"""The stage on real artifacts: its figures, what promotion reads, and what a model cannot do."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bifocal.datasets import read_dataset
from components.evaluate.champion import compare
from pipelines.promotion.policy import FILE, load, summarize
from runtime.artifacts import artifact_hash
from tests.components.evaluate.conftest import evaluate


def test_metrics_hold_figures_intervals_and_baselines(evaluated: Path) -> None:
    figures = json.loads((evaluated / "metrics" / "metrics.json").read_text())
    total = 0.0
    for direction in ("caption_retrieval", "image_retrieval"):
        assert figures[direction].keys() == {"R@1", "R@5", "median_rank", "mean_rank"}
        for name, value in figures[direction].items():
            interval = figures["intervals"][direction][name]
            assert interval["low"] <= value <= interval["high"]
        total += figures[direction]["R@1"] + figures[direction]["R@5"]
    assert figures["recall_sum"] == pytest.approx(total)
    assert figures["chance"]["image_retrieval"]["R@1"] == pytest.approx(100 / 9)
    pointing = figures["pointing"]
    assert pointing["low"] <= pointing["accuracy"] <= pointing["high"]
    assert 0 < pointing["random"] < 100
    assert {"before", "after", "chance", "kept"} == figures["modifiers"].keys()
    assert sum(row["phrases"] for row in pointing["categories"].values()) == pointing["phrases"]
    assert 0 < figures["semantic"]["NDCG_area"] <= 100
    for name in (
        "pictures/recall_curves.png", "pictures/rank_histogram.png", "pictures/semantic_curves.png",
        "pictures/pointing.png", "pictures/similar_images.png", "recall_curves.csv", "semantic_curves.csv",
    ):  # fmt: skip
        assert (evaluated / "metrics" / name).stat().st_size > 40
    histogram = pd.read_csv(evaluated / "metrics" / "rank_histogram.csv")
    assert histogram["image_retrieval"].sum() == pytest.approx(100)


def test_the_card_says_what_the_model_is_for_and_where_it_comes_from(evaluated: Path, artifacts: Path) -> None:
    card = (evaluated / "metrics" / "MODEL_CARD.md").read_text()
    figures = json.loads((evaluated / "metrics" / "metrics.json").read_text())
    assert card.startswith("# SMILEEncoder")
    assert f"{figures['pointing']['accuracy']:.1f} % hit" in card
    for part in ("## Intended use", "Not for decisions about people", "image of a caption, R@5", "### dataset, by"):
        assert part in card
    for name in ("dataset", "features", "text", "embedding"):
        assert artifact_hash(artifacts / name) in card


def test_ranks_are_what_promotion_reads(evaluated: Path, artifacts: Path) -> None:
    ranks = pd.read_parquet(evaluated / "metrics" / "ranks.parquet")
    figures = json.loads((evaluated / "metrics" / "metrics.json").read_text())
    split = read_dataset(artifacts / "dataset").split("test")
    counts = {"caption_retrieval": 9, "image_retrieval": 45, "pointing": len(split.phrases)}
    assert ranks["direction"].value_counts().to_dict() == counts
    policy = load(FILE).model_copy(update={"recall_at": [1, 5]})
    found = summarize(ranks, policy)
    assert found["pointing"] == pytest.approx(figures["pointing"]["accuracy"])
    assert found["recall_sum"] == pytest.approx(figures["recall_sum"])


def test_the_same_run_twice_gives_the_same_bytes(evaluated: Path, artifacts: Path, tmp_path: Path) -> None:
    evaluate(artifacts, tmp_path)
    for path in sorted(evaluated.rglob("*.*")):
        assert path.read_bytes() == (tmp_path / path.relative_to(evaluated)).read_bytes(), path.name


def test_a_split_or_a_wish_without_pointing_says_so(artifacts: Path, tmp_path: Path) -> None:
    tracked = evaluate(artifacts, tmp_path, pointing=None, compared_images=0)
    assert not any(name.startswith("pointing") for name in tracked)
    assert {"semantic.NDCG_area", "modifiers.after"} <= tracked.keys()
    page = (tmp_path / "report" / "index.html").read_text()
    assert "No pointing was asked for" in page
    assert "no image files of another split to compare with" in page
    assert set(pd.read_parquet(tmp_path / "metrics" / "ranks.parquet")["direction"]) == {
        "caption_retrieval", "image_retrieval",
    }  # fmt: skip


def test_another_localizer_is_a_name(artifacts: Path, tmp_path: Path) -> None:
    tracked = evaluate(artifacts, tmp_path, pointing={"name": "BEANHeatmap", "k": 2})
    assert 0 <= tracked["pointing.accuracy"] <= 100


def test_a_protocol_that_the_split_is_not_for_is_refused(artifacts: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ranks 1 x 1000 images and the split has 9"):
        evaluate(artifacts, tmp_path, protocol="flickr_1k")


def test_the_champion_is_compared_on_shared_queries_alone() -> None:
    def ranks(hits: int, images: range) -> pd.DataFrame:
        names = [str(image) for image in images]
        rank = np.where(np.arange(len(names)) < hits, 0.0, 9.0)
        return pd.DataFrame(
            {"direction": "image_retrieval", "query": names, "image_id": names, "content": names, "rank": rank}
        )

    (row,) = compare(ranks(30, range(40)), ranks(10, range(50)), [1], resamples=200, seed=0)
    assert (row.here, row.there, row.difference, row.sign) == ("75.0", "25.0", "+50.0", 1)
    assert compare(ranks(1, range(5)), ranks(1, range(10, 15)), [1], resamples=200, seed=0) == []
