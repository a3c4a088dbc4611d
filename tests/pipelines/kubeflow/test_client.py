"""A run on a cluster: command line and real kfp.Client, against a stub of the server."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.catalog import pipeline_components
from pipelines.__main__ import main
from pipelines.kubeflow import client as cluster
from tests.pipelines.compiled import ROOT
from tests.pipelines.kubeflow_stub import serve

CPU, GPU = (f"registry.example/bifocal@sha256:{digit * 64}" for digit in "12")
PIPELINE = "{pipelineInfo: {name: any}, sdkVersion: kfp-2.17.0, schemaVersion: 2.1.0}"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client keeps its context in the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("KFP_ENDPOINT", raising=False)


def test_run_submits_the_compiled_pipeline_to_the_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    images, recipe = tmp_path / "images.json", tmp_path / "recipe.yaml"
    images.write_text(json.dumps({"cpu": CPU, "gpu": GPU}))
    recipe.write_text("seed: 5\n")
    command = ["run", "--runner", "cluster", "--recipe", str(recipe), "--images", str(images), "--revision", "b" * 40]
    with serve() as (address, stub):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        monkeypatch.setenv("KFP_TOKEN", "secret")
        done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert done.output.splitlines()[-1] == "run0"
    assert stub.calls == [("POST", "/apis/v2beta1/experiments"), ("POST", "/apis/v2beta1/runs")]
    assert stub.tokens == ["Bearer secret"]
    (sent,) = stub.submitted
    assert sent["experiment_id"] == "experiment-1"
    assert not sent.get("runtime_config", {}).get("parameters")  # the compiled defaults apply
    pipeline, platform = (sent["pipeline_spec"][name] for name in ("pipeline_spec", "platform_spec"))
    assert pipeline["root"]["inputDefinitions"]["parameters"]["revision"]["defaultValue"] == "b" * 40
    containers = [executor["container"] for executor in pipeline["deploymentSpec"]["executors"].values()]
    stages = {stage.name for stage in pipeline_components()}
    assert {part for container in containers for part in container["command"]} >= stages
    assert {container["image"] for container in containers} == {CPU, GPU}
    # The parameters of each step have the seed of the recipe.
    assert json.dumps(pipeline).count(r"\"seed\":5") >= len(stages)
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert all(pod["activeDeadlineSeconds"] for pod in pods.values())


def test_submit_explains_a_missing_endpoint_a_dead_server_and_a_rejection(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="KFP_ENDPOINT is not set: export KFP_ENDPOINT="):
        cluster.submit(PIPELINE)
    monkeypatch.setenv("KFP_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"no Kubeflow server answers at http://127\.0\.0\.1:9 .*port-forward"):
        cluster.submit(PIPELINE)
    monkeypatch.setenv("KFP_TOKEN", "expired")
    with serve() as (address, _):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        with pytest.raises(OSError, match=r"rejected the request with status 401: .*token expired.*KFP_TOKEN"):
            cluster.submit(PIPELINE)
