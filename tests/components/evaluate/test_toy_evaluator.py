"""A new evaluator, one class and one line, appears in metrics.json, MLflow, the report and the
model card."""

import json
from pathlib import Path

import mlflow
import pytest

import bifocal.evaluation
from bifocal.evaluation.base import Result, Subject
from components.evaluate.spec import COMPONENT, EvaluateParams
from runtime.stage import Job, run_stage
from tests.bifocal.evaluation.small import INPUTS
from tests.components.evaluate.conftest import PARAMS


class CaptionLength:
    """Mean number of characters per caption."""

    # As if the class were defined in a file of the package.
    __module__ = "bifocal.evaluation.caption_length"

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``."""
        return Result(
            "Caption length",
            {"caption_length": {"mean": float(subject.split.captions["text"].str.len().mean())}},
        )


def test_registered_evaluator_appears_in_every_output(
    artifacts: Path, mlflow_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bifocal.evaluation, "CaptionLength", CaptionLength, raising=False)
    values = PARAMS | {"evaluators": ["CaptionLength"]}
    params = EvaluateParams.model_validate_json(json.dumps(values))
    inputs = {name: artifacts / name for name in INPUTS}
    outputs = {name: tmp_path / name for name in COMPONENT.outputs}
    run_stage(Job(COMPONENT, params, inputs, outputs, {"seed": 1, "evaluate": values}))

    mean = json.loads((tmp_path / "metrics/metrics.json").read_text())["caption_length"]["mean"]
    assert mean > 10
    runs = mlflow.search_runs(
        search_all_experiments=True, output_format="list", filter_string="tags.stage = 'evaluate'"
    )
    assert [run.data.metrics["caption_length.mean"] for run in runs] == [pytest.approx(mean)]
    page = (tmp_path / "report/index.html").read_text()
    assert '<section id="caption-length">' in page
    assert f"{mean:.1f}" in page
    assert (
        f"| caption_length.mean | {mean:.1f} |" in (tmp_path / "metrics/MODEL_CARD.md").read_text()
    )
