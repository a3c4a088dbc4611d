"""The forecast of ``plan`` against the resources of the steps: a step that would be killed is refused, and fitted."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.__main__ import main
from pipelines.kubeflow import resources
from pipelines.kubeflow.preflight.forecast import proposal, to_bytes
from pipelines.kubeflow.step_resources import StepResources
from pipelines.plan.corpus import CorpusSize
from pipelines.plan.make import Plan, StagePlan
from pipelines.plan.measure import Estimate
from pipelines.plan.show import as_json, read_stages
from tests.pipelines.compiled import REVISION, ROOT

HOURS = 3600.0
EMBEDDING = StagePlan("embed_collection", Estimate(7.16 * HOURS, 0.0), memory=11.4e9, shardable=True)
"""The largest forecasts of the recipes of BEAN on 16 cores, when a step had an hour and 4Gi."""
SMALL = {"memory": "4Gi", "timeout": 3600}


def load(**values: Any) -> resources.Resources:
    """Return the shipped resources with other values of ``embed_collection``."""
    name, shipped = "embed_collection", resources.load()
    step = StepResources.model_validate({**shipped.for_step(name).model_dump(), **values})
    return shipped.model_copy(update={"steps": {**shipped.steps, name: step}})


def as_text(*stages: StagePlan) -> str:
    return json.dumps(as_json(Plan(CorpusSize(1, 1), [1], stages)))


def test_the_shipped_resources_hold_the_largest_forecast_and_the_former_ones_are_refused() -> None:
    assert proposal(EMBEDDING, resources.load()) == {}
    fitted = proposal(EMBEDDING, load(**SMALL))
    assert fitted == {"memory": "14Gi", "shards": 2, "timeout": 25776}
    assert proposal(EMBEDDING, load(**fitted)) == {}
    whole = StagePlan("embed_collection", EMBEDDING.seconds)  # parameters that forbid shards
    assert proposal(whole, load(**SMALL)) == {"timeout": 51552}


@given(hours=st.floats(0, 500), memory=st.floats(0, 1e12), shardable=st.booleans(), shards=st.integers(1, 8))
@settings(max_examples=20)  # each reads resources.yaml
def test_a_fitted_step_has_enough(hours: float, memory: float, shardable: bool, shards: int) -> None:
    stage = StagePlan("embed_collection", Estimate(hours * HOURS, 0.0), memory, shardable=shardable)
    step = {**SMALL, "shards": shards}
    fitted = load(**step | proposal(stage, load(**step)))
    assert proposal(stage, fitted) == {}
    found = fitted.for_step("embed_collection")
    assert to_bytes(found.memory) >= memory
    assert found.timeout * (found.shards if shardable else 1) >= hours * HOURS


@pytest.mark.parametrize(
    ("quantity", "expected"), [("7", 7), ("2k", None), ("3K", 3000), ("4Gi", 4 * 2**30), ("5M", 5e6)]
)
def test_quantities_are_in_bytes(quantity: str, expected: float | None) -> None:
    if expected is None:  # the pattern of resources.yaml refuses it
        with pytest.raises(ValueError, match="invalid literal"):
            to_bytes(quantity)
    else:
        assert to_bytes(quantity) == expected


def test_preflight_refuses_what_the_plan_contradicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "plan.json").write_text(as_text(EMBEDDING, StagePlan("evaluate", problem="its process was killed")))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({"steps": {"embed_collection": SMALL}}))
    skipped = [word for name in ("images", "repository", "buckets", "permissions") for word in ("--skip-check", name)]
    command = ["preflight", "--revision", REVISION, "--plan", str(tmp_path / "plan.json"), *skipped]
    assert CliRunner().invoke(main, command).exit_code == 0
    refused = CliRunner().invoke(main, [*command, "--resources", str(tmp_path / "small.yaml")])
    assert "plan: embed_collection needs 7.2 h and 11.4 GB of memory by the plan, and gets" in str(refused.exception)
    (tmp_path / "plan.json").write_text("{}")
    assert "not a plan" in str(CliRunner().invoke(main, command).exception)


def test_plan_writes_the_resources_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [EMBEDDING, StagePlan("evaluate", Estimate(1.0, 0.0), 1e9)]
    assert read_stages(as_text(*stages)) == stages
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("pipelines.plan.make.make_plan", lambda *_: Plan(CorpusSize(1, 1), [1], stages))
    small, fit = tmp_path / "small.yaml", tmp_path / "fit.yaml"
    small.write_text(yaml.safe_dump({"steps": {"embed_collection": SMALL}}))
    done = CliRunner().invoke(main, ["plan", "--json", "--resources", str(small), "--fit", str(fit)])
    assert done.exit_code == 0, done.exception
    fitted = resources.load(overlays=[small, fit])
    assert fitted.for_step("embed_collection").memory == "14Gi"
    assert fitted.for_step("embed_collection").cpu == resources.load().for_step("embed_collection").cpu
    assert list(yaml.safe_load(fit.read_text())["steps"]) == ["embed_collection"]
