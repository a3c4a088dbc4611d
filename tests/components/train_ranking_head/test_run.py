"""The stage train_ranking_head on small scenes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from bifocal.features import FeatureWriter
from bifocal.ranking_heads.model import load_head
from bifocal.sorters import PositionwiseLSTMSorter, save_sorter
from components.__main__ import main
from components.catalog import pipeline_components
from components.train_ranking_head.run import run
from components.train_ranking_head.spec import COMPONENT, TrainRankingHeadParams
from runtime import parameters
from runtime.artifacts import hash_files
from runtime.parameters import ParameterError
from tests.bifocal.datasets.small import write_scenes

ROOT = Path(__file__).parents[3]


def phase(**changes: Any) -> dict[str, Any]:
    defaults = {"epochs": 1, "learning_rate": 0.1, "schedule": "Constant", "frozen_until": {}}
    return defaults | {"learning_rate_factors": {}} | changes


SHAPES: dict[str, Any] = {
    "task": "shapes",
    "metric": "average_precision",
    "head": {"name": "WildcatHead", "maps": 2},
    "loss": {"name": "MeanAveragePrecisionLoss", "auxiliary_weight": 1.0},
    "sorter": {"name": "ExactRankSorter"},
    "surrogate": {"name": "MultiLabelSoftMarginLoss"},
    "backbone": None,
    "embedding": None,
    "batch_size": 16,
    "phases": [phase(epochs=3, schedule={"name": "Step", "step_size": 2})],
    "optimizer": "Adam",
    "precision": "float32",
    "max_grad_norm": None,
    "micro_batch_size": None,
    "checkpoint_every_seconds": 300.0,
}
COUNT = {
    "task": "count",
    "metric": "spearman",
    "head": {"name": "MLPHead", "hidden": 0},
    "loss": {"name": "SpearmanLoss"},
    "surrogate": {"name": "RegressionLoss", "to_ranks": True},
    "phases": [phase(epochs=12, learning_rate=0.03)],
}


def validated(**changes: Any) -> TrainRankingHeadParams:
    sections = parameters.validate(
        {"seed": 0, "train_ranking_head": {**SHAPES, **changes}}, [COMPONENT]
    )
    params = sections["train_ranking_head"]
    assert isinstance(params, TrainRankingHeadParams)
    return params


def outputs(folder: Path) -> dict[str, Path]:
    paths = {name: folder / name for name in COMPONENT.outputs}
    for path in paths.values():
        path.mkdir(parents=True, exist_ok=True)
    return paths


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Scenes, features that contain which shapes are present, and a small pretrained sorter."""
    folder = tmp_path_factory.mktemp("artifacts")
    paths = {name: folder / name for name in ("dataset", "features", "sorter")}
    for path in paths.values():
        path.mkdir()
    corpus = write_scenes(paths["dataset"], 60, 30, 30)
    random = np.random.default_rng(0)
    shapes: dict[str, list[float]] = {}
    for label in corpus.labels:
        if label.task == "shapes":
            assert label.value is not None
            shapes.setdefault(label.image_id, []).append(label.value)
    with FeatureWriter(
        paths["features"], regions=4, dim=10, metadata={}, images_per_file=64
    ) as writer:
        for image_id, present in shapes.items():
            cells = 0.1 * random.normal(size=(4, 10))
            cells[random.integers(4)] += 4 * np.array(present)
            writer.add(image_id, cells.astype(np.float32))
    save_sorter(
        paths["sorter"], PositionwiseLSTMSorter(16, hidden=4, layers=1), {"hidden": 4, "layers": 1}
    )
    return paths


@pytest.mark.parametrize(
    ("changes", "labels", "chance"), [({}, 10, 0.5), (COUNT, 1, 0.4)], ids=["shapes", "count"]
)
def test_run_learns_both_tasks_of_the_scenes(tmp_path, artifacts, changes, labels, chance):
    metrics = run(validated(**changes), **artifacts, **outputs(tmp_path))
    assert set(metrics) == {
        "loss_validation",
        "loss_test",
        "surrogate_validation",
        "surrogate_test",
    }
    assert metrics["loss_test"] > chance
    report = json.loads((tmp_path / "ranking_metrics" / "metrics.json").read_text())
    assert report["loss"]["test"] == metrics["loss_test"]
    assert report["surrogate"]["name"] == (changes or SHAPES)["surrogate"]["name"]
    head, names = load_head(tmp_path / "ranking_head")
    assert type(head.head).__name__ == (changes or SHAPES)["head"]["name"]
    assert len(names) == labels
    table = pd.read_parquet(tmp_path / "ranking_metrics" / "predictions.parquet")
    assert len(table) == 30 * labels
    assert list(table.columns) == ["group", "label", "loss", "truth", "surrogate"]
    history = pd.read_csv(tmp_path / "ranking_metrics" / "history.csv")
    assert len(history) == 2 * (changes or SHAPES)["phases"][0]["epochs"]
    assert history[(changes or SHAPES)["metric"]].notna().all()


def test_run_uses_the_pretrained_sorter_and_writes_the_same_bytes_with_the_same_seed(
    tmp_path, artifacts
):
    written = []
    for name in ("a", "b"):
        params = validated(sorter=None, surrogate=None)
        metrics = run(params, **artifacts, **outputs(tmp_path / name))
        written.append(hash_files(tmp_path / name))
    assert set(metrics) == {"loss_validation", "loss_test"}
    assert written[0] == written[1]
    with pytest.raises(ValueError, match="this PositionwiseLSTMSorter ranks 16 scores, not 8"):
        run(validated(sorter=None, batch_size=8), **artifacts, **outputs(tmp_path / "failed"))


def test_untrained_sorter_is_rejected():
    with pytest.raises(
        ParameterError, match="sorter is PositionwiseLSTMSorter, which must be trained first"
    ):
        validated(sorter={"name": "PositionwiseLSTMSorter"})


def test_sorter_that_no_loss_uses_is_rejected():
    with pytest.raises(
        ParameterError,
        match="sorter is ExactRankSorter, but MultiLabelSoftMarginLoss use no sorter",
    ):
        validated(loss="MultiLabelSoftMarginLoss", surrogate=None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": {"name": "SpearmanLos"}}, "did you mean 'SpearmanLoss'"),
        ({"head": {"name": "MLPHead", "labels": 3}}, r"head\.labels: leave it out"),
        ({"surrogate": {"name": "RegressionLoss", "power": 3}}, r"surrogate\.power: got 3"),
        ({"metric": "accuracy"}, "metric: got 'accuracy'"),
        ({"phases": []}, "phases"),
        (
            {"phases": [phase(frozen_until={"backbone": 1})]},
            "a phase names backbone, but backbone is null",
        ),
        ({"embedding": "embedding"}, "embedding is set, but backbone is null"),
    ],
)
def test_parameters_are_validated(changes, message):
    with pytest.raises(ParameterError, match=message):
        validated(**changes)


def test_stage_is_a_command_of_the_pipeline_of_ranking_heads():
    help_text = CliRunner().invoke(main, ["train_ranking_head", "--help"])
    assert help_text.exit_code == 0
    assert "artifacts/ranking_head" in help_text.output
    assert COMPONENT not in pipeline_components("embedding")
    assert [stage.name for stage in pipeline_components("ranking_head")] == [
        "prepare_dataset",
        "pretrain_sorter",
        "extract_features",
        "train_ranking_head",
        "export_ranking_head",
        "register_ranking_head",
    ]
