"""A run on a cluster: command line and real kfp.Client, against a stub of the server."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from kfp import Client

from pipelines.__main__ import main
from pipelines.kubeflow import client as cluster
from pipelines.kubeflow import resources, schedule
from pipelines.kubeflow.client import PREFIX, Target, submit
from tests.pipelines.compiled import REVISION, ROOT, STAGES
from tests.pipelines.kubeflow_stub import serve

CPU, GPU = (f"registry.example/bifocal@sha256:{digit * 64}" for digit in "12")
PIPELINE = "{pipelineInfo: {name: any}, sdkVersion: kfp-2.17.0, schemaVersion: 2.1.0}"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The client keeps its context in the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(ROOT)
    for name in ("ENDPOINT", "NAMESPACE", "TOKEN", "TOKEN_FILE", "COOKIES"):
        monkeypatch.delenv(f"KFP_{name}", raising=False)


def target(client: Client) -> Target:
    return Target(client, resources.load(), REVISION)


def test_run_submits_a_version_of_the_pipeline_to_the_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    images, recipe, overlay = (
        tmp_path / name for name in ("images.json", "recipe.yaml", "cluster.yaml")
    )
    images.write_text(json.dumps({"cpu": CPU, "gpu": GPU}))
    recipe.write_text("seed: 5\n")
    overlay.write_text(
        "service_account: trainer\npipeline_root: s3://bucket/runs\nsteps: {evaluate: {gpu: "
        "null}}\n"
    )
    command = [
        "run",
        "--runner",
        "cluster",
        "--recipe",
        str(recipe),
        "--images",
        str(images),
        "--revision",
        "b" * 40,
    ]
    with serve() as (address, stub):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        monkeypatch.setenv("KFP_TOKEN", "secret")
        command += ["--resources", str(overlay), "--skip-check", "all"]
        done = CliRunner().invoke(main, command, catch_exceptions=False)
    assert done.exit_code == 0
    assert stub.tokens == ["Bearer secret"]
    (sent,) = stub.submitted
    assert done.output.splitlines()[-1].startswith("run")
    assert sent["experiment_id"] in stub.experiments
    assert sent["service_account"] == "trainer"
    # The compiled defaults apply.
    assert sent["runtime_config"] == {"pipeline_root": "s3://bucket/runs", "parameters": {}}
    version = stub.versions[sent["pipeline_version_reference"]["pipeline_version_id"]]
    assert version["description"] == f"commit {'b' * 40}"
    pipeline, platform = yaml.safe_load_all(version["pipeline_spec"])
    assert (
        pipeline["root"]["inputDefinitions"]["parameters"]["revision"]["defaultValue"] == "b" * 40
    )
    containers = {
        name: executor["container"]
        for name, executor in pipeline["deploymentSpec"]["executors"].items()
    }
    stages = {stage.name for stage in STAGES}
    assert {part for container in containers.values() for part in container["command"]} >= stages
    assert {container["image"] for container in containers.values()} == {CPU, GPU}
    assert "accelerator" not in containers["exec-evaluate"]["resources"]
    assert "accelerator" in containers["exec-train-embedding"]["resources"]
    # The parameters of each step have the seed of the recipe.
    assert json.dumps(pipeline).count(r"\"seed\":5") >= len(stages)
    pods = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert all(pod["activeDeadlineSeconds"] for pod in pods.values())


def test_equal_pipelines_share_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as (address, stub):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        for text in (PIPELINE, PIPELINE, PIPELINE + " # another"):
            with cluster.kfp_client() as client:
                submit(text, target(client))
    assert len(stub.pipelines) == 1
    versions = [run["pipeline_version_reference"]["pipeline_version_id"] for run in stub.submitted]
    assert versions[0] == versions[1] != versions[2]


def test_a_server_with_several_users_gets_the_namespace_with_each_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve(alice="team") as (address, stub):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        monkeypatch.setenv("KFP_TOKEN", "alice")
        with (
            pytest.raises(ValueError, match="several users: export KFP_NAMESPACE"),
            cluster.kfp_client() as client,
        ):
            submit(PIPELINE, target(client))
        monkeypatch.setenv("KFP_NAMESPACE", "other")
        denied = r"status 403: .*not authorized in namespace other.*KFP_NAMESPACE"
        with pytest.raises(OSError, match=denied), cluster.kfp_client() as client:
            submit(PIPELINE, target(client))
        monkeypatch.setenv("KFP_NAMESPACE", "team")
        with cluster.kfp_client() as client:
            submit(PIPELINE, target(client))
            assert schedule.list_schedules(client, PREFIX) == []
    assert [run["namespace"] for run in stub.submitted] == ["team"]
    assert [pipeline["namespace"] for pipeline in stub.pipelines.values()] == ["team"]


def test_a_token_file_is_read_again_and_cookies_are_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    monkeypatch.setenv("KFP_NAMESPACE", "team")
    monkeypatch.setenv("KFP_TOKEN_FILE", str(token))
    with serve(alice="team", session="team") as (address, stub):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        with (
            pytest.raises(ValueError, match=r"KFP_TOKEN_FILE is .*, which is not a file"),
            cluster.kfp_client(),
        ):
            pass
        token.write_text("expired")
        with cluster.kfp_client() as client:
            token.write_text("alice")
            submit(PIPELINE, target(client))
        monkeypatch.delenv("KFP_TOKEN_FILE")
        monkeypatch.setenv("KFP_COOKIES", "session")
        with cluster.kfp_client() as client:
            submit(PIPELINE, target(client))
    assert stub.tokens == ["Bearer alice", None]


def test_a_missing_endpoint_a_dead_server_and_a_rejection_are_explained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run() -> None:
        with cluster.kfp_client() as client:
            submit(PIPELINE, target(client))

    with pytest.raises(ValueError, match="KFP_ENDPOINT is not set: export KFP_ENDPOINT="):
        run()
    monkeypatch.setenv("KFP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv(
        "KFP_NAMESPACE", "team"
    )  # or else the client asks five times whether there are several users
    with pytest.raises(
        OSError, match=r"no Kubeflow server answers at http://127\.0\.0\.1:9 .*port-forward"
    ):
        run()
    monkeypatch.setenv("KFP_TOKEN", "expired")
    with serve() as (address, _):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        with pytest.raises(
            OSError, match=r"rejected the request with status 401: .*token expired.*KFP_TOKEN"
        ):
            run()
