"""Parent runs in a real MLflow server: one per pipeline run, with the status of the whole and links
to Kubeflow."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import Run

from runtime.mlflow import create_pipeline_run, end_pipeline_run, stage_run
from runtime.mlflow.parents import PARENT_TAG, PIPELINE_TAG

ROOT = Path(__file__).parents[3]
VALUES = {"seed": 1, "toy": {"rate": 0.5}, "other": {"rate": 0.1}}

STAGES = """
import os, time
from runtime.mlflow import stage_run
values = {"seed": 1, "toy": {"rate": 0.5}, "other": {"rate": 0.1}}
children = []
start = time.time() + 0.3
for stage, seconds, code in (("toy", 0.1, 1), ("other", 0.6, 0)):
    child = os.fork()
    if child == 0:
        time.sleep(start - time.time())
        try:
            with stage_run(stage, values, {}):
                time.sleep(seconds)
                if code:
                    raise ValueError("this stage fails")
        except ValueError:
            pass
        os._exit(0)
    children.append(child)
for child in children:
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture
def server(
    mlflow_server: int, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> str:
    """Address of the server; each test has an experiment of its own."""
    address = f"http://127.0.0.1:{mlflow_server}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    mlflow.set_tracking_uri(address)  # an earlier test of this process may have set another
    # MLflow remembers the experiment that an earlier test of this process chose; a step is a new
    # process.
    monkeypatch.setattr("mlflow.tracking.fluent._active_experiment_id", None)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_ID", raising=False)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", request.node.name)
    for name in (
        "KFP_RUN_ID",
        "MLFLOW_RUN_ID",
        "KFP_MLFLOW_CONFIG",
        "BIFOCAL_MLFLOW_UI",
        "BIFOCAL_KFP_UI",
    ):
        monkeypatch.delenv(name, raising=False)
    return address


def runs() -> tuple[list[Run], list[Run]]:
    """Return the parents and the stages of the test's experiment, newest first."""
    found = mlflow.search_runs(
        experiment_names=[os.environ["MLFLOW_EXPERIMENT_NAME"]], output_format="list"
    )
    parents = [run for run in found if PIPELINE_TAG in run.data.tags]
    return parents, [run for run in found if run not in parents]


def test_stages_that_start_at_once_have_one_parent_with_the_status_of_the_whole(
    server: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STAGES], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (parent,), stages = runs()
    assert [stage.data.tags[PARENT_TAG] for stage in stages] == 2 * [parent.info.run_id]
    assert parent.info.status == "FAILED"  # although the other stage ended later
    with stage_run("toy", VALUES, {}):  # the failed stage, run again
        assert [parent.info.status for parent in runs()[0]] == ["RUNNING"]
    assert [parent.info.status for parent in runs()[0]] == ["FINISHED"]


@pytest.mark.parametrize(("succeeded", "status"), [(True, "FINISHED"), (False, "FAILED")])
def test_run_on_a_cluster_has_one_parent_that_its_last_step_ends(
    server: str, monkeypatch: pytest.MonkeyPatch, succeeded: bool, status: str
) -> None:
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    monkeypatch.setenv("BIFOCAL_KFP_UI", "https://kubeflow.example")
    page = "https://kubeflow.example/#/runs/details/run-1"
    first = create_pipeline_run("run-1")
    assert create_pipeline_run("run-1") == first  # a second attempt of the same step
    assert first.url.startswith(f"{server}/#/experiments/")
    with stage_run("toy", VALUES, {}):
        mlflow.log_metric("core_hours", 0.25)
        mlflow.log_metric("version", 7)
    (parent,), (stage,) = runs()
    assert stage.data.tags[PARENT_TAG] == parent.info.run_id == first.run_id
    for run in (parent, stage):
        assert (run.data.tags["kfp.pipeline_run_id"], run.data.tags["kfp.pipeline_run_url"]) == (
            "run-1",
            page,
        )
    assert parent.info.status == "RUNNING"
    assert page in parent.data.tags["mlflow.note.content"]
    mlflow.MlflowClient().update_run(stage.info.run_id, status="RUNNING")  # its pod was evicted
    end_pipeline_run("run-1", succeeded)
    (parent,), (stage,) = runs()
    assert (parent.info.status, stage.info.status) == (status, "FAILED")
    assert parent.info.run_name == "pipeline run-1, version 7"
    assert parent.data.metrics["core_hours"] == 0.25
    assert 0.0 < parent.data.metrics["duration_seconds"] < 60.0
    end_pipeline_run("run-2", succeeded)  # whose first step failed


def test_pipeline_runs_of_one_commit_and_parameters_have_their_own_parents(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kfp_run in ("run-1", "run-2"):
        monkeypatch.setenv("KFP_RUN_ID", kfp_run)
        create_pipeline_run(kfp_run)
        with stage_run("toy", VALUES, {}):
            pass
    parents, stages = runs()
    assert [stage.data.tags[PARENT_TAG] for stage in stages] == [
        parent.info.run_id for parent in parents
    ]


def test_stage_without_its_parent_is_tracked_and_reported(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KFP_RUN_ID", "run-1")
    with stage_run("toy", VALUES, {}):
        pass
    assert "no MLflow run has the tag bifocal.pipeline = run-1" in capsys.readouterr().err
    assert len(runs()[1]) == 1


def plugin_environment(server: str, experiment: str, parent: str, task: str) -> Mapping[str, str]:
    """Return what Kubeflow's plugin sets in a step
    (backend/src/v2/common/plugins/mlflow/handler.go:149)."""
    config = {
        "endpoint": server,
        "parentRunId": parent,
        "experimentId": experiment,
        "authType": "none",
    }
    return {
        "KFP_MLFLOW_CONFIG": json.dumps({**config, "timeout": "30s", "injectUserEnvVars": True}),
        "MLFLOW_RUN_ID": task,
        "MLFLOW_TRACKING_URI": server,
        "MLFLOW_EXPERIMENT_ID": experiment,
        "KFP_RUN_ID": "run-1",
    }


def test_kubeflows_mlflow_plugin_owns_the_parent_and_the_runs_of_the_steps(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = mlflow.MlflowClient(server)
    experiment = client.create_experiment(os.environ["MLFLOW_EXPERIMENT_NAME"])
    # As the API server and the driver create them: apiserver/plugins/mlflow/handler.go:128,
    # v2/.../handler.go:71.
    parent = client.create_run(
        experiment, run_name="bifocal 2026", tags={"kfp.pipeline_run_id": "run-1"}
    ).info.run_id
    tasks = {
        name: client.create_run(experiment, run_name=name, tags={PARENT_TAG: parent}).info.run_id
        for name in ("fingerprint", "toy", "notify")
    }
    for name, task in tasks.items():
        for variable, value in plugin_environment(server, experiment, parent, task).items():
            monkeypatch.setenv(variable, value)
        if name == "fingerprint":
            assert create_pipeline_run("run-1").run_id == parent
        elif name == "toy":
            with stage_run("toy", VALUES, {"code": "c0de"}):
                mlflow.log_metric("loss", 0.5)
        else:
            end_pipeline_run("run-1", True)
    assert {run.info.run_id for run in client.search_runs([experiment])} == {
        parent,
        *tasks.values(),
    }
    toy = client.get_run(tasks["toy"])
    assert (toy.info.status, toy.data.tags["code"], toy.data.metrics["loss"]) == (
        "FINISHED",
        "c0de",
        0.5,
    )
    assert client.get_run(parent).info.status == "RUNNING"  # the API server ends it


def test_page_of_a_run_has_no_credentials(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIFOCAL_MLFLOW_UI", "https://me:S3cret@mlflow.example/")
    url = create_pipeline_run("run-1").url
    assert url.startswith("https://***@mlflow.example/#/experiments/")
