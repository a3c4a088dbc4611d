"""Comparison of an evaluation with a registered version, in a real sqlite store."""

import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bifocal.evaluation.rank_tables import RANKS
from pipelines.__main__ import main
from pipelines.policies import load_promotion
from runtime.mlflow import EVALUATION_DIR

POLICY = load_promotion()
IMAGES, CAPTIONS_PER_IMAGE = 60, 3


def ranks(recall: float, seed: int = 0) -> pd.DataFrame:
    """Return ranks of a model: 0 with probability ``recall``, otherwise 50."""
    generator = np.random.default_rng(seed)
    rows = [
        ("caption_retrieval", str(image), str(image), f"image {image}") for image in range(IMAGES)
    ] + [
        ("image_retrieval", f"{image}-{caption}", str(image), f"text {image}-{caption}")
        for image in range(IMAGES)
        for caption in range(CAPTIONS_PER_IMAGE)
    ]
    frame = pd.DataFrame(rows, columns=["direction", "query", "image_id", "content"])
    return frame.assign(
        protocol="full", rank=np.where(generator.random(len(frame)) < recall, 0.0, 50.0)
    )


@pytest.fixture
def store(mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(mlflow_store)
    mlflow.set_experiment("comparison")
    return tmp_path


def register_champion(folder: Path, quality: float) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "file").write_text("x")
    (folder / "evaluation").mkdir()
    ranks(quality).to_parquet(folder / "evaluation" / RANKS)
    client = mlflow.MlflowClient()
    with mlflow.start_run() as run:
        mlflow.log_artifacts(str(folder / "evaluation"), EVALUATION_DIR)
    client.create_registered_model(POLICY.model)
    version = client.create_model_version(
        POLICY.model, (folder / "model").as_uri(), run.info.run_id
    )
    client.set_registered_model_alias(POLICY.model, POLICY.champion, version.version)


def test_compare_prints_and_writes_differences(store: Path) -> None:
    register_champion(store, 0.3)
    (store / "artifacts/metrics").mkdir(parents=True)
    ranks(0.9).to_parquet(store / "artifacts/metrics" / RANKS)
    done = CliRunner().invoke(
        main,
        ["compare", "--output", "compared"],
        catch_exceptions=False,
        env={"COLUMNS": "120"},
    )
    rows = [line for line in done.output.splitlines() if line.startswith("│ ") and "R@" in line]
    assert len(rows) == 2 * len(POLICY.recall_at)
    assert "better" in rows[0]
    page = (store / "compared" / "index.html").read_text()
    assert "caption R@1" in page
    assert "bifocal version 1" in page


def test_compare_explains_missing_champion_and_missing_evaluation(store: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run evaluate first"):
        CliRunner().invoke(main, ["compare"], catch_exceptions=False)
    (store / "artifacts/metrics").mkdir(parents=True)
    ranks(0.9).to_parquet(store / "artifacts/metrics" / RANKS)
    with pytest.raises(ValueError, match="alias 'champion': 'python -m pipelines promote' makes"):
        CliRunner().invoke(main, ["compare"], catch_exceptions=False)
    register_champion(store, 0.3)
    ranks(0.9).assign(protocol="five folds").to_parquet(store / "artifacts/metrics" / RANKS)
    with pytest.raises(
        ValueError, match=r"caption_retrieval: 240 of 240 common queries .* different protocols"
    ):
        CliRunner().invoke(main, ["compare"], catch_exceptions=False)
    ranks(0.9).assign(content="other").to_parquet(store / "artifacts/metrics" / RANKS)
    with pytest.raises(ValueError, match="share no query"):
        CliRunner().invoke(main, ["compare"], catch_exceptions=False)


def write_run(folder: Path, recalls: list[float]) -> None:
    """Write the runs of a recipe with so many seeds."""
    for seed, recall in enumerate(recalls, start=1):
        metrics = folder / f"seed-{seed}" / "artifacts" / "metrics"
        metrics.mkdir(parents=True)
        ranks(recall, seed).to_parquet(metrics / RANKS)
        (folder / f"seed-{seed}" / "seconds.json").write_text('{"train_embedding": 90.0}')
        (folder / f"seed-{seed}" / "params.yaml").write_text(
            f"train_embedding: {{seed: {seed}, model: {folder.name}}}"
        )


def test_finished_runs_are_compared_over_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("runs/mine/first"), [0.3, 0.32, 0.31])
    write_run(Path("runs/mine/second"), [0.6, 0.63, 0.58])
    write_run(Path("runs/mine/third"), [0.31, 0.33])
    names = [f"runs/mine/{name}" for name in ("first", "second", "third")]
    done = CliRunner().invoke(
        main, ["compare", *names], catch_exceptions=False, env={"COLUMNS": "140"}
    )
    *lines, page = done.output.splitlines()
    assert page == "runs/compare/first-second-third/index.html"
    assert lines[-2].startswith("second finds more than first: recall sum +")
    assert lines[-1].startswith(
        "no difference between third and first can be seen with 2 and 3 seeds and 60 images"
    )
    assert any("train_embedding.model" in line and "second" in line for line in lines)
    assert not any("train_embedding.seed" in line for line in lines)
    assert any("minutes of a training" in line and "1.5" in line for line in lines)
    assert lines[-1] in Path(page).read_text().replace("&#43;", "+")
    folder = Path(page).parent
    lines = (folder / "table.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 + 3 + 2
    assert lines[0].startswith("system,seed,caption_retrieval.R@1,")
    assert lines[0].endswith(",recall_sum,parameters,steps,minutes")
    assert lines[4].startswith("second,1,")
    assert lines[4].endswith(",,,1.5")
    _, first, second, third = (
        line for line in (folder / "table.tex").read_text().splitlines() if line.endswith(r"\\")
    )
    assert second.count(r"\textbf") == 7
    assert r"\textbf" not in first + third
    numbers = json.loads((folder / "comparison.json").read_text())
    (recall, *_) = (one["metrics"]["recall_sum"] for one in numbers["comparisons"])
    for part in ("interval_over_images", "interval_over_seeds"):
        low, high = recall[part]
        assert recall["interval"][0] < low < recall["difference"] < high < recall["interval"][1]
    assert {file.name for file in folder.iterdir()} == {
        "index.html",
        "chart-1.svg",
        "chart-2.svg",
        "table.csv",
        "table.tex",
        "comparison.json",
    }
    one = CliRunner().invoke(main, ["compare", names[0]])
    assert one.exit_code == 2
    assert "only runs/mine/first is given: name two or more" in one.output
    ranks(0.5).assign(content="other").to_parquet(
        "runs/mine/third/seed-1/artifacts/metrics/" + RANKS
    )
    with pytest.raises(
        ValueError, match=r"share no query: give them the same corpus and evaluate.split"
    ):
        CliRunner().invoke(main, ["compare", names[0], names[2]], catch_exceptions=False)
