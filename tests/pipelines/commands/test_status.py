"""``python -m pipelines status``: versions with decisions, and the state of a project."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bifocal.datasets import Dataset
from bifocal.datasets.corrections import FILE, add_correction
from pipelines.__main__ import main
from pipelines.commands.finished import keep_artifacts
from pipelines.policies import PROMOTION
from runtime import parameters
from tests.components.cluster.versions import POLICY, ROOT, decide, register


def test_versions_have_decisions_and_a_project_its_state(
    store: str, artifacts: Path, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "projects" / "toys"
    week = project / "monitoring" / "2026-11-22"
    week.mkdir(parents=True)
    (project / "recipe.yaml").write_text("")
    (project / "promotion.yaml").write_text(PROMOTION.read_text())
    findings = [{"name": "images", "crossed": True}, {"name": "queries", "crossed": False}]
    (week / "monitor.json").write_text(json.dumps({"findings": findings}))
    add_correction(project / FILE, "1.jpg", "a carrot", right=True)
    register(tmp_path / "a", dataset, 0.1)
    decide(artifacts)
    register(tmp_path / "b", dataset, 0.1)
    decide(artifacts, POLICY.model_copy(update={"min_images": 60}))
    report = tmp_path / "runs" / "kubeflow" / "toys" / "evaluate" / "report" / "index.html"
    report.parent.mkdir(parents=True)
    report.write_text("report")
    monkeypatch.setenv("COLUMNS", "200")
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["status", "--project", "toys", "--page", str(page)])
    assert done.exit_code == 0, done.output
    for part in ("promoted", "champion", "refused", "60 are required", "2026-11-22: images"):
        assert part in done.output
        assert part in page.read_text()
    for line in ("corrections: 1", f"report {report.as_uri()}", "experiment toys"):
        assert line in done.output


def test_a_run_keeps_the_artifacts_of_its_own_steps(tmp_path: Path) -> None:
    for step, output in (("prepare-dataset", "dataset"), ("build-index", "index")):
        (tmp_path / step / output).mkdir(parents=True)
    values = parameters.load(ROOT / "params.yaml")
    keep_artifacts(tmp_path, values, {"prepare-dataset": "CACHED"})
    assert [link.name for link in (tmp_path / "artifacts").iterdir()] == ["dataset"]
    assert parameters.load(tmp_path / "params.yaml") == values
