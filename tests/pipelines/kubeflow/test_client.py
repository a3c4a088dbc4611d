"""A run on a cluster, by the command line and the real kfp.Client, against a server that keeps what it is sent."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.catalog import pipeline_components
from pipelines.__main__ import main
from pipelines.kubeflow import client as cluster

sys.path.insert(0, str(Path(__file__).parents[1]))
from kubeflow_stub import serve

ROOT = Path(__file__).parents[3]
CPU, GPU = (f"registry.example/bifocal@sha256:{digit * 64}" for digit in "12")
ANY = "{pipelineInfo: {name: any}, sdkVersion: kfp-2.17.0, schemaVersion: 2.1.0}"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client keeps its context there."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("KFP_ENDPOINT", raising=False)


def test_the_cluster_gets_the_compiled_pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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
    assert not sent.get("runtime_config", {}).get("parameters")  # the compiled defaults hold
    pipeline, platform = (sent["pipeline_spec"][name] for name in ("pipeline_spec", "platform_spec"))
    assert pipeline["root"]["inputDefinitions"]["parameters"]["revision"]["defaultValue"] == "b" * 40
    containers = [executor["container"] for executor in pipeline["deploymentSpec"]["executors"].values()]
    assert {part for one in containers for part in one["command"]} >= {stage.name for stage in pipeline_components()}
    assert {one["image"] for one in containers} == {CPU, GPU}
    assert json.dumps(pipeline).count(r"\"seed\":5") >= len(
        pipeline_components()
    )  # the recipe's, in each step's parameters
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert all(pod["activeDeadlineSeconds"] for pod in pods.values())


def test_a_server_that_is_not_named_or_away_or_refuses_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="KFP_ENDPOINT is not set: export KFP_ENDPOINT="):
        cluster.submit(ANY)
    monkeypatch.setenv("KFP_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(OSError, match=r"no Kubeflow answers at http://127\.0\.0\.1:9 .*port-forward"):
        cluster.submit(ANY)
    monkeypatch.setenv("KFP_TOKEN", "expired")
    with serve() as (address, _):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        with pytest.raises(OSError, match=r"refused with 401: .*who is that.*KFP_TOKEN"):
            cluster.submit(ANY)
