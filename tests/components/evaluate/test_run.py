"""Stage evaluate on real artifacts: metrics, tables, figures, model card, and the ranks that
promotion reads."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest
import torch
from huggingface_hub import ModelCard

from bifocal.datasets import read_dataset
from bifocal.evaluation.base import Result, summary_metrics
from bifocal.evaluation.retrieval.ranked_split import rank_table
from bifocal.features import FeatureStore
from bifocal.metrics import Ranks
from bifocal.metrics.retrieval.protocols import Fold
from components.evaluate.run import write_tables_and_figures
from components.evaluate.spec import COMPONENT
from runtime.artifacts import artifact_hash
from runtime.parameters import ParameterError, validate
from tests.components.evaluate.conftest import PARAMS, evaluate


def test_metrics_have_values_intervals_and_baselines(evaluated: Path) -> None:
    metrics = json.loads((evaluated / "metrics" / "metrics.json").read_text())
    assert metrics.keys() == {
        "caption_retrieval",
        "image_retrieval",
        "recall_sum",
        "intervals",
        "reranked",
        "chance",
        "images",
        "captions",
        "pointing",
        "semantic",
        "modifiers",
    }
    total, more = 0.0, {"caption_retrieval": {"R-precision", "mAP@R"}, "image_retrieval": set()}
    for direction in ("caption_retrieval", "image_retrieval"):
        assert metrics[direction].keys() == {
            "R@1",
            "R@5",
            "median_rank",
            "mean_rank",
            *more[direction],
        }
        for name, value in metrics[direction].items():
            interval = metrics["intervals"][direction][name]
            assert interval["low"] <= value <= interval["high"]
        total += metrics[direction]["R@1"] + metrics[direction]["R@5"]
    assert metrics["recall_sum"] == pytest.approx(total)
    assert metrics["chance"]["image_retrieval"]["R@1"] == pytest.approx(100 / 9)
    pointing = metrics["pointing"]
    assert pointing["low"] <= pointing["accuracy"] <= pointing["high"]
    assert 0 < pointing["random"] < 100
    assert {"before", "after", "chance", "kept", "subtracted"} == metrics["modifiers"].keys()
    assert sum(row["phrases"] for row in pointing["categories"].values()) == pointing["phrases"]
    assert 0 < metrics["semantic"]["NDCG_area"] <= 100


def test_summary_has_the_headlines_of_each_evaluator(evaluated: Path) -> None:
    metrics = json.loads((evaluated / "metrics" / "metrics.json").read_text())
    summary = json.loads((evaluated / "metrics" / "summary.json").read_text())
    assert summary["recall_sum"] == metrics["recall_sum"]
    assert summary["image_retrieval.R@1"] == metrics["image_retrieval"]["R@1"]
    assert summary["pointing.accuracy"] == metrics["pointing"]["accuracy"]
    assert {name.partition(".")[0] for name in summary} >= {"semantic", "modifiers"}


def test_no_cell_of_a_table_is_a_formula_for_a_spreadsheet(tmp_path: Path) -> None:
    phrases = ['=HYPERLINK("http://x")', "+1", "-a dog", "@SUM(A1)", "\tred", "\n=1", "＝1", "＠A"]
    phrases.append("a = b")
    table = pd.DataFrame({"phrase": phrases, "AP": [-0.5, *range(len(phrases) - 1)]})
    write_tables_and_figures(tmp_path, [Result("phrases", tables={"phrases": table})])
    found = pd.read_csv(tmp_path / "phrases.csv")
    assert list(found["phrase"]) == [*(f"'{phrase}" for phrase in phrases[:-1]), "a = b"]
    assert found["AP"][0] == -0.5


def test_summary_has_at_most_12_columns() -> None:
    results = [Result(str(number), {f"metric_{number}": 1.0, "other": 2.0}) for number in range(20)]
    assert list(summary_metrics(results)) == [f"metric_{number}" for number in range(12)]


def test_tables_and_figures_are_written(evaluated: Path) -> None:
    for name in (
        "pictures/recall_curves.svg",
        "pictures/rank_histogram.svg",
        "pictures/semantic_curves.svg",
        "pictures/pointing.png",
        "pictures/similar_images.png",
        "recall_curves.csv",
        "semantic_curves.csv",
    ):
        assert (evaluated / "metrics" / name).stat().st_size > 40
    histogram = pd.read_csv(evaluated / "metrics" / "rank_histogram.csv")
    assert histogram["image_retrieval"].sum() == pytest.approx(100)


def test_model_card_has_intended_use_metrics_and_lineage(evaluated: Path, artifacts: Path) -> None:
    card = (evaluated / "metrics" / "MODEL_CARD.md").read_text()
    metrics = json.loads((evaluated / "metrics" / "metrics.json").read_text())
    own = card.split("---\n", 2)[2].lstrip()
    assert own.startswith("# SMILEEncoder")
    assert f"| Pointing accuracy | {metrics['pointing']['accuracy']:.1f} % |" in card
    for part in (
        "## Intended use",
        "decisions about people",
        "| Image retrieval, R@5 |",
        "### dataset, by",
    ):
        assert part in card
    for name in ("dataset", "features", "text", "embedding"):
        assert artifact_hash(artifacts / name) in card
    # MLflow's databases limit the description of a version, which is the card without its lineage.
    assert len(own.partition("## Data, parameters and lineage")[0]) < 4900
    stated = ModelCard(card).data  # as the hub reads it
    assert (stated.library_name, stated.model_name) == ("bifocal", "SMILEEncoder")
    values = {result.metric_type: result.metric_value for result in stated.eval_results}
    assert values["image_retrieval.R@5"] == pytest.approx(metrics["image_retrieval"]["R@5"])
    assert {result.dataset_split for result in stated.eval_results} == {"test"}


def test_ranks_cover_every_query(evaluated: Path, artifacts: Path) -> None:
    ranks = pd.read_parquet(evaluated / "metrics" / "ranks.parquet")
    assert list(ranks.columns) == ["direction", "query", "image_id", "content", "protocol", "rank"]
    metrics = json.loads((evaluated / "metrics" / "metrics.json").read_text())
    dataset = read_dataset(artifacts / "dataset")
    split = dataset.split("test")
    counts = {"caption_retrieval": 9, "image_retrieval": 45, "pointing": len(split.phrases)}
    assert ranks["direction"].value_counts().to_dict() == counts
    hits = ranks.assign(first=ranks["rank"] < 1, fifth=ranks["rank"] < 5).groupby("direction")
    recalls = 100 * hits[["first", "fifth"]].mean()
    assert recalls.loc["pointing", "first"] == pytest.approx(metrics["pointing"]["accuracy"])
    assert recalls.drop("pointing").to_numpy().sum() == pytest.approx(metrics["recall_sum"])
    trained_on = pd.read_parquet(evaluated / "metrics" / "trained_on.parquet")
    others = dataset.images.loc[dataset.images["split"] != "test", "sha256"]
    assert sorted(trained_on["content"]) == sorted(set(others))
    evaluated_on = pd.read_parquet(evaluated / "metrics" / "evaluated_on.parquet")
    assert list(evaluated_on["image_id"]) == list(split.images["image_id"])
    assert list(evaluated_on["content"]) == list(split.images["sha256"])
    stored = FeatureStore(artifacts / "features").gather([3]).features[0].numpy()
    assert sha256(stored.tobytes()).hexdigest() == evaluated_on["features"][0]


def test_protocol_identifies_the_candidates_that_are_ranked_together(
    artifacts: Path, evaluated: Path
) -> None:
    ranks = pd.read_parquet(evaluated / "metrics" / "ranks.parquet")
    retrieval = ranks[ranks["direction"] != "pointing"]
    split = read_dataset(artifacts / "dataset").split("test")
    contents = [
        *split.images["sha256"],
        *(sha256(text.encode()).hexdigest() for text in split.captions["text"]),
    ]
    assert set(retrieval["protocol"]) == {sha256("\n".join(sorted(contents)).encode()).hexdigest()}
    folds = [
        Fold(torch.arange(3 * n, 3 * n + 3), torch.arange(15 * n, 15 * n + 15), torch.arange(15))
        for n in (0, 1)
    ]
    images, captions = split.images.iloc[:6], split.captions.iloc[:30]
    first = [Ranks(zeros, zeros, zeros + 1) for zeros in (torch.zeros(6), torch.zeros(30))]
    table = rank_table(images, captions, (first[0], first[1]), folds)
    assert table.groupby("direction", sort=True)["protocol"].nunique().to_list() == [2, 2]
    assert table["protocol"].nunique() == 2


def test_evaluation_is_reproducible_byte_for_byte(
    evaluated: Path, artifacts: Path, tmp_path: Path
) -> None:
    evaluate(artifacts, tmp_path)
    for path in sorted(evaluated.rglob("*.*")):
        assert path.read_bytes() == (tmp_path / path.relative_to(evaluated)).read_bytes(), path.name


def test_files_of_a_killed_evaluation_are_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        write_tables_and_figures(
            tmp_path, [Result("One", {}, tables={"ranks": pd.DataFrame({"rank": [1]})})]
        )
    assert (tmp_path / "ranks.csv").read_text() == "rank\n1\n"


def test_only_listed_evaluators_run(
    artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIFOCAL_RUN_NAME", "products retrain")
    scalars = evaluate(
        artifacts,
        tmp_path,
        evaluators=["Retrieval", "DataQuality"],
        report={"queries": 2, "duplicate_check": 0},
    )
    assert {name.partition(".")[0] for name in scalars} == {
        "recall_sum",
        "caption_retrieval",
        "image_retrieval",
        "reranked",
    }
    page = (tmp_path / "report" / "index.html").read_text()
    assert "Pointing" not in page
    assert re.search(
        r"<title>products, \d{4}-\d\d-\d\d: \d+ images of the split test</title>", page
    )
    assert "No image files of this and another split were compared" in page
    directions = set(pd.read_parquet(tmp_path / "metrics" / "ranks.parquet")["direction"])
    assert directions == {"caption_retrieval", "image_retrieval"}
    # DVC's plots find a table for every declared plot.
    assert (tmp_path / "metrics" / "semantic_curves.csv").read_text() == "R,NDCG\n"


def test_evaluator_takes_another_localizer(artifacts: Path, tmp_path: Path) -> None:
    pointing = {"name": "PointingGame", "localizer": {"name": "BEANHeatmap", "k": 2}}
    scalars = evaluate(artifacts, tmp_path, evaluators=[pointing])
    assert 0 <= scalars["pointing.accuracy"] <= 100
    assert "pointing.k" not in scalars


def test_human_triplets_are_read_from_a_user_file(
    artifacts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = {"dim": 8, "centers": 2, "components": 8, "epochs": 1}
    monkeypatch.setattr("bifocal.evaluation.semantic.human_triplets.FISHER", small)
    query, first, second = read_dataset(artifacts / "dataset").split("test").images["image_id"][:3]
    file = tmp_path / "judged.csv"
    file.write_text(f"query,first,second,o1,o2,o3\n{query},{first},{second},4,1,0\n")
    scalars = evaluate(
        artifacts, tmp_path, evaluators=[{"name": "SemanticRetrieval", "human_triplets": str(file)}]
    )
    assert scalars["triplets.agreement"] in (pytest.approx(20), pytest.approx(80))


def test_protocol_of_another_split_size_is_rejected(artifacts: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ranks 1 x 1000 images and the split has 9"):
        evaluate(artifacts, tmp_path, evaluators=[{"name": "Retrieval", "protocol": "flickr_1k"}])


def test_evaluator_listed_twice_is_rejected_before_any_work() -> None:
    values = {"seed": 1, "evaluate": PARAMS | {"evaluators": ["TextModifiers", "TextModifiers"]}}
    with pytest.raises(ParameterError, match="evaluators lists TextModifiers 2 times"):
        validate(values, [COMPONENT])


def test_invalid_ks_are_rejected_before_any_work() -> None:
    values = {"seed": 1, "evaluate": PARAMS | {"evaluators": [{"name": "Retrieval", "ks": [0, 5]}]}}
    with pytest.raises(ParameterError, match=r"ks is \[0, 5\]: give at least one K"):
        validate(values, [COMPONENT])
