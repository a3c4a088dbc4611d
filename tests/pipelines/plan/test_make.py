"""Plan of some stages on drawn scenes."""

import json
import re
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.plan.corpus import CorpusSize
from pipelines.plan.make import Plan, Run, StagePlan, _stage_plan, make_plan
from pipelines.plan.measure import Estimate, Usage
from pipelines.plan.show import as_json, lacks, tables
from runtime import parameters

ROOT = Path(__file__).parents[3]
OVERLAY = {
    "prepare_dataset": {"corpus": {"name": "Scenes", "train": 80, "val": 10, "test": 10, "size": 64}},
    "vectorize_captions": {"vectorizer": {"name": "TFIDF"}},
}
STAGES = ("prepare_dataset", "vectorize_captions", "evaluate")
SETTINGS = [
    "train_embedding.phases.0.batches.batch_size=20",
    "extract_features.weights.name=FromFile",
    f"extract_features.weights.path={__file__}",
]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan of two quick stages, and of a stage without its inputs."""
    values = parameters.merge(parameters.load(ROOT / "params.yaml", [], SETTINGS), OVERLAY)
    lines: list[str] = []
    made = make_plan(values, 30, tmp_path_factory.mktemp("plan"), lines.append, STAGES)
    assert lines[:2] == ["sample 1 of 3: prepare_dataset", "sample 1 of 3: vectorize_captions"]
    return made


def test_stages_are_scaled_to_the_corpus(plan: Plan) -> None:
    assert (plan.size.images, plan.size.captions) == (100, 500)
    assert list(plan.sampled) == [15, 22, 30]
    prepared, vectorized, _ = plan.stages
    assert prepared.seconds is not None
    assert 0 < prepared.seconds.value < 600
    assert prepared.disk == pytest.approx(100 * (1_400 + 0.6 * 64**2), rel=0.5)
    assert 5e7 < vectorized.memory < 5e9


def test_stage_that_fails_is_reported_with_the_reason(plan: Plan) -> None:
    assert plan.stages[2].seconds is None
    assert "not complete" in plan.stages[2].problem or "missing" in plan.stages[2].problem
    shown = Console(width=200, file=StringIO())
    shown.print(tables(plan))
    text = shown.file.getvalue()
    assert "not measured: evaluate: " in text
    assert re.search(r"prepare_dataset +\d.* ± .* MB", text)
    assert json.loads(json.dumps(as_json(plan)))["size"]["images"] == 100


@pytest.mark.parametrize(("weights", "shardable"), [("Pretrained", True), ("TrainOnPhrases", False)])
def test_a_plan_says_which_stages_can_be_sharded(weights: str, shardable: bool) -> None:
    section = {"extract_features": {"weights": {"name": weights}}}
    values = parameters.merge(parameters.load(ROOT / "params.yaml"), section)
    usage = Usage(10.0, 1e9, 0.0, 1e6)
    runs = [Run(values, images, 5 * images, {"extract_features": usage}) for images in (10, 20, 30)]
    planned = _stage_plan("extract_features", values, CorpusSize(100, 500), runs, start=1.0)
    assert planned.seconds is not None
    assert (planned.seconds.value, planned.shardable) == (pytest.approx(11.0), shardable)


def test_plan_names_what_this_machine_lacks() -> None:
    stages = [StagePlan("evaluate", Estimate(1, 0), memory=1e15, disk=1e18), StagePlan("export_onnx", problem="failed")]
    reasons = list(lacks(Plan(CorpusSize(1, 1), [1], stages)))
    assert reasons[0].startswith("evaluate needs 1000000.0 GB of memory")
    assert reasons[1].startswith("the artifacts need 1000000000.0 GB of disk")
