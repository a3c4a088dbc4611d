"""``python -m pipelines status``: versions with decisions, and the state of a project."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from bifocal.datasets import Dataset
from bifocal.datasets.corrections import FILE, add_correction
from pipelines.__main__ import main
from pipelines.commands.finished import keep_artifacts
from pipelines.policies import PROMOTION
from runtime import parameters
from runtime.mlflow import create_pipeline_run, end_pipeline_run
from tests.components.cluster.versions import POLICY, ROOT, decide, register

CRONTAB = """
# 0 1 * * *  cd /srv && .venv/bin/python -m pipelines run --project toys --flow refresh
0 3 * * 1    cd /srv && .venv/bin/python -m pipelines run --project toys --flow retrain
0 3 * * 1    cd /srv && .venv/bin/python -m pipelines run --project toys-2 --flow retrain
0 5 * * 7    cd /srv && .venv/bin/python -m pipelines monitor --project toys
"""


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
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "toys")
    create_pipeline_run("run-1", name="toys retrain")
    end_pipeline_run("run-1", succeeded=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "crontab").write_text(f"#!/bin/sh\necho '{CRONTAB}'\n")
    (tmp_path / "crontab").chmod(0o755)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["status", "--project", "toys", "--page", str(page)])
    assert done.exit_code == 0, done.output
    for part in ("promoted", "champion", "refused", "60 are required", "2026-11-22: images"):
        assert part in done.output
        assert part in page.read_text()
    for line in ("corrections: 1", f"report {report.as_uri()}", "experiment toys"):
        assert line in done.output
    assert re.search(r"last run: toys retrain, 20\d\d-[-: \d]+ UTC, failed", done.output)
    soon = r"next run: retrain \d{4}-\d\d-\d\d 03:00 \S+; monitor by the line 0 5 \* \* 7\n"
    assert re.search(soon, done.output)
    assert "retrain 20" in page.read_text()


def test_a_run_keeps_the_artifacts_of_its_own_steps(tmp_path: Path) -> None:
    for step, output in (("prepare-dataset", "dataset"), ("build-index", "index")):
        (tmp_path / step / output).mkdir(parents=True)
    values = parameters.load(ROOT / "params.yaml")
    keep_artifacts(tmp_path, values, {"prepare-dataset": "CACHED"})
    assert [link.name for link in (tmp_path / "artifacts").iterdir()] == ["dataset"]
    assert parameters.load(tmp_path / "params.yaml") == values
