"""Preflight: what a cluster could not run is refused before anything is sent, all problems at
once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from click.testing import CliRunner

from pipelines.__main__ import main
from pipelines.commands.cluster import Pipeline
from pipelines.kubeflow import resources
from pipelines.kubeflow.namespace import (
    NotProbed,
    PreflightSubject,
    check_permissions,
    check_services,
)
from pipelines.kubeflow.preflight import (
    check_all,
    check_buckets,
    check_images,
    check_repository,
    dvc_remote,
)
from runtime import parameters
from runtime.checkout import call
from tests.git_server import PASSWORD, USER, create_repository, serve_git
from tests.pipelines.compiled import REVISION, ROOT, VALUES
from tests.pipelines.kubeflow_stub import serve
from tests.pipelines.kubernetes_stub import Kubernetes, serve_kubernetes

RUNTIME = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/torch-distributed"
DIGEST = "@sha256:" + "0" * 64
GOOD = {group: f"registry.company.com/bifocal{DIGEST}" for group in ("cpu", "gpu")}


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    for name in ("KFP_NAMESPACE", "KFP_TOKEN", "BIFOCAL_GIT_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


def subject(
    namespace: str | None = None, revision: str = REVISION, nodes: int = 1, **changes: Any
) -> PreflightSubject:
    """Return the default pipeline with changes of resources.yaml."""
    values = parameters.merge(yaml.safe_load(resources.FILE.read_text()), changes)
    values["steps"]["train_embedding"]["nodes"] = nodes
    values["steps"] = {
        name: {**values["default"], **step} for name, step in values["steps"].items()
    }
    return PreflightSubject(
        [VALUES], resources.Resources.model_validate(values), revision, namespace, ["train"]
    )


def test_a_schedule_of_the_unchanged_file_is_refused_with_all_problems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serve() as (address, stub):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        done = CliRunner().invoke(main, ["schedule", "apply", "--demo"])
    assert done.exit_code != 0
    problems = str(done.exception)
    for expected in (
        "images: cpu is localhost/bifocal:cpu, which only this machine has",
        "images: gpu is localhost/bifocal:gpu",
        "repository: https://example.invalid/bifocal.git: no other machine can reach the host "
        "example.invalid",
        "buckets: s3://bifocal/checkpoints/kubeflow/bifocal",
        "buckets: s3://bifocal/monitoring/kubeflow/bifocal",
        "buckets: push is true, but DVC has no default remote",
        "--skip-check",
    ):
        assert expected in problems
    assert stub.schedules == {}
    assert stub.versions == {}


def test_a_run_on_the_cluster_is_refused_unless_the_checks_are_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pipeline, "compile", lambda pipeline: "pipeline")
    with serve() as (address, stub):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        command = ["run", "--runner", "cluster", "--demo", "--revision", REVISION]
        refused = CliRunner().invoke(main, [*command, "--skip-check", "buckets"])
        assert "localhost/bifocal:cpu" in str(refused.exception)
        assert "buckets" not in str(refused.exception)
        assert stub.submitted == []
        done = CliRunner().invoke(main, [*command, "--skip-check", "all"], catch_exceptions=False)
        assert done.exit_code == 0
        assert len(stub.submitted) == 1


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("registry.company.com/bifocal:1.0", "without a digest"),
        (f"localhost:5000/bifocal{DIGEST}", "only this machine has"),
        (f"registry.invalid/bifocal{DIGEST}", "only this machine has"),
        (f"127.0.0.1:5000/bifocal{DIGEST}", "only this machine has"),
    ],
)
def test_images_have_a_digest_and_a_registry_that_nodes_reach(image: str, expected: str) -> None:
    (problem,) = check_images(subject(images={**GOOD, "gpu": image}))
    assert expected in problem
    assert list(check_images(subject(images=GOOD))) == []


@pytest.fixture
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Address and commit of a private repository, whose name git translates to a local server."""
    commit = create_repository(tmp_path / "server" / "bifocal")
    with serve_git(tmp_path / "server") as address:
        monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
        monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.{address}/.insteadOf")
        monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://git.company.com/")
        yield "https://git.company.com/bifocal", commit


def test_the_repository_answers_to_the_login_and_has_the_commit(
    private: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, commit = private
    (problem,) = check_repository(subject(repository=repository, revision=commit))
    assert "cannot read https://git.company.com/bifocal" in problem
    assert "BIFOCAL_GIT_PASSWORD" in problem
    monkeypatch.setenv("BIFOCAL_GIT_USERNAME", USER)
    monkeypatch.setenv("BIFOCAL_GIT_PASSWORD", PASSWORD)
    assert list(check_repository(subject(repository=repository, revision=commit))) == []
    (problem,) = check_repository(subject(repository=repository, revision="f" * 40))
    assert f"does not have {'f' * 40}" in problem
    assert "push the commit" in problem


@pytest.mark.parametrize(
    "repository", ["/home/me/bifocal", "file:///bifocal", "git@localhost:bifocal.git"]
)
def test_a_repository_of_this_machine_is_a_problem(repository: str) -> None:
    assert len(list(check_repository(subject(repository=repository)))) == 1


def test_the_repository_is_not_checked_if_no_step_reads_it() -> None:
    assert list(check_repository(subject(push=False))) == []


def commit_remote(folder: Path, address: str | None) -> str:
    """Commit a configuration of DVC with a remote in ``folder``; return the commit."""
    (folder / ".dvc").mkdir(exist_ok=True)
    remote = f"[core]\n    remote = s3\n['remote \"s3\"']\n    url = {address}\n"
    (folder / ".dvc" / "config").write_text(remote if address else "")
    (folder / ".dvc" / "config.local").write_text(remote.replace(str(address), "s3://local/dvc"))
    git = ("git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t")
    call("git", "init", "--quiet", str(folder))
    call(*git, "add", ".dvc/config")
    call(*git, "commit", "--quiet", "--allow-empty", "--message=remote")
    return call(*git, "rev-parse", "HEAD").strip()


@pytest.mark.usefixtures("s3")
def test_folders_are_writable_and_user_files_are_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    revision = commit_remote(tmp_path, "s3://bucket/dvc")
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dvc" / "config").unlink()  # steps clone the commit
    assert dvc_remote(revision) == "s3://bucket/dvc"
    good = subject(
        checkpoints="s3://bucket/checkpoints",
        trainer={"folder": "s3://bucket/jobs"},
        nodes=2,
        revision=revision,
    )
    assert list(check_buckets(good)) == []
    (unknown,) = check_buckets(replace(good, revision="f" * 40))
    assert isinstance(unknown, NotProbed)
    for place in ("/srv/dvc", "file:///srv/dvc"):
        folder = replace(good, revision=commit_remote(tmp_path, place))
        assert f"{place} is a folder of this machine" in next(iter(check_buckets(folder)))
    assert dvc_remote(commit_remote(tmp_path, "s3://bucket/100%")) == "s3://bucket/100%"
    none = replace(good, revision=commit_remote(tmp_path, None))
    assert "DVC has no default remote" in next(iter(check_buckets(none)))
    values = parameters.merge(
        VALUES, {"prepare_dataset": {"corpus": {"name": "COCO", "root": "s3://bucket/coco"}}}
    )
    missing = subject(checkpoints="s3://nobody/checkpoints", revision=revision)
    problems = list(check_buckets(replace(missing, values=[values])))
    assert len(problems) == 2
    assert "s3://nobody/checkpoints/" in problems[0]
    assert "s3://bucket/coco: no such file or folder" in problems[1]


@pytest.mark.usefixtures("s3")
def test_the_flow_monitor_writes_to_its_folder_and_reads_its_files() -> None:
    good, logs = {"checkpoints": None, "push": False}, "s3://bucket/logs/search.jsonl"
    assert (
        list(check_buckets(subject(**good, monitoring={"folder": "s3://nobody/monitoring"}))) == []
    )
    missing = {"folder": "s3://nobody/monitoring", "queries": [logs]}
    problems = list(
        check_buckets(replace(subject(**good, monitoring=missing), flows=["refresh", "monitor"]))
    )
    assert len(problems) == 2
    assert "s3://nobody/monitoring/" in problems[0]
    assert "the keys are this machine's AWS_..." in problems[0]
    assert f"{logs}: no such file or folder" in problems[1]
    boto3.client("s3").put_object(Bucket="bucket", Key="logs/search.jsonl", Body=b"{}")
    found = {"folder": "s3://bucket/monitoring", "queries": [logs]}
    assert list(check_buckets(replace(subject(**good, monitoring=found), flows=["monitor"]))) == []


@pytest.fixture
def api(tmp_path: Path) -> Iterator[type[Kubernetes]]:
    with serve_kubernetes(tmp_path / "kubeconfig") as stub:
        stub.objects = {
            "team/serviceaccounts/default-editor",
            "team/secrets/registry",
            "team/poddefaults/access-ml-pipeline",
            "team/persistentvolumeclaims/c",
            *(f"team/secrets/bifocal-{name}" for name in ("s3", "mlflow", "notice")),
            RUNTIME,
        }
        yield stub


def test_permissions_of_the_caller_and_of_the_pods_are_reviewed(api: type[Kubernetes]) -> None:
    assert list(check_permissions(subject("team", nodes=2))) == []
    account = "system:serviceaccount:team:default-editor"
    assert ("self", "create", "runs") in api.reviews
    assert (account, "create", "workflowtaskresults") in api.reviews
    assert (account, "delete", "trainjobs") in api.reviews
    assert (account, "get", "pods/log") in api.reviews
    api.denied = {("create", "trainjobs"), ("delete", "jobs")}
    problems = list(check_permissions(subject("team", nodes=2)))
    assert problems == [
        "you may not delete jobs.pipelines.kubeflow.org: see deploy/README.md",
        f"{account} may not create trainjobs.trainer.kubeflow.org: see deploy/README.md",
    ]
    api.objects.remove(RUNTIME)
    (_, runtime) = check_permissions(subject("team", nodes=2))
    assert runtime.startswith("the cluster has no ClusterTrainingRuntime torch-distributed: ")


def test_permissions_that_may_not_be_reviewed_are_not_probed(api: type[Kubernetes]) -> None:
    api.may_review_others = False
    found = list(check_permissions(subject("team", nodes=2)))
    account = "system:serviceaccount:team:default-editor"
    assert found == 2 * [f"you may not read the permissions of {account}"]
    assert all(isinstance(text, NotProbed) for text in found)


def test_retries_and_mlflow_are_looked_at(api: type[Kubernetes]) -> None:
    server, argo = "mlflow/deployments/mlflow", "kubeflow/configmaps/workflow-controller-configmap"
    (unknown,) = check_services(subject("team"))
    assert isinstance(unknown, NotProbed)
    api.bodies = {
        argo: {"data": {"workflowDefaults": "spec: {retryStrategy: {retryPolicy: OnError}}"}},
        server: {"metadata": {"name": "mlflow"}, "status": {"availableReplicas": 0}},
        "team": {"metadata": {"name": "team", "labels": {}}},
    }
    assert [text.partition(":")[0] for text in check_services(subject("team"))] == [
        "Argo repeats no failed step (retryPolicy",
        "the deployment of MLflow, mlflow.mlflow.svc.cluster.local, is not available",
        "namespace team may not reach MLflow",
    ]
    api.bodies = {
        argo: {"data": {}},
        server: {"metadata": {"name": "mlflow"}, "status": {"availableReplicas": 1}},
        "team": {"metadata": {"name": "team", "labels": {"bifocal/mlflow-client": "true"}}},
    }
    assert list(check_services(subject("team"))) == []


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"])
def test_a_claim_that_several_pods_mount_is_for_several_nodes(
    api: type[Kubernetes], mode: str
) -> None:
    claim = {"metadata": {"name": "c"}, "spec": {"accessModes": [mode]}}
    api.bodies = {f"team/persistentvolumeclaims/{name}": claim for name in "s"}
    api.bodies["search/persistentvolumeclaims/images"] = claim
    store = subject("team", store={"claim": "s", "mount_path": "/store"})
    found = list(check_permissions(store))
    names = {"ReadWriteOnce": ["s", "images"], "ReadOnlyMany": ["s"], "ReadWriteMany": []}[mode]
    assert [text.split()[2] for text in found] == names


def test_objects_that_the_pods_name_exist(api: type[Kubernetes]) -> None:
    volume = {"claim": "c", "mount_path": "/c"}
    good = subject("team", image_pull_secrets=["registry"], default={"volumes": [volume]})
    assert list(check_permissions(good)) == []
    names = {
        "image_pull_secrets": ["x"],
        "service_account": "y",
        "store": {"claim": "s", "mount_path": "/store"},
    }
    bad = subject("team", default={"volumes": [{**volume, "claim": "z"}]}, **names)
    assert list(check_permissions(bad)) == [
        "namespace team has no service account y",
        "namespace team has no secret x",
        "namespace team has no claim z",
        "namespace team has no claim s",
    ]


@pytest.mark.parametrize("check", [check_permissions, check_services])
def test_without_a_cluster_at_hand_permissions_are_not_probed(check: Any) -> None:
    (text,) = check(subject())
    assert isinstance(text, NotProbed)
    assert "no Kubernetes API can be reached" in text


def test_a_check_that_could_not_be_made_has_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["preflight", "--revision", REVISION]
    command += [f"--skip-check={name}" for name in ("images", "repository", "buckets")]
    monkeypatch.setenv("KFP_ENDPOINT", "http://127.0.0.1:9")
    done = CliRunner().invoke(main, command)
    first = str(done.exception).splitlines()[1]
    assert first.startswith("  server: no Kubeflow server answers at http://127.0.0.1:9")
    with serve() as (address, _):
        monkeypatch.setenv("KFP_ENDPOINT", address)
        done = CliRunner().invoke(main, command)
        assert "no problem was found, but 2 checks could not be made" in str(done.exception)
        assert "not probed: permissions: no Kubernetes API can be reached" in done.output
        command += ["--skip-check=permissions", "--skip-check=services"]
        assert CliRunner().invoke(main, command).output == "no problem was found\n"


def test_credentials_in_problems_are_redacted() -> None:
    images = {**GOOD, "cpu": "a"}
    with pytest.raises(ValueError, match="images: cpu is a, without a digest") as error:
        check_all(
            subject(images=images, repository="https://git.invalid/x?token=hunter22"),
            ["server", "buckets", "permissions", "services"],
        )
    assert "hunter22" not in str(error.value)


@pytest.mark.parametrize("user", ["token", "ci:token", ":token", "ci:to/ken"])
def test_a_repository_with_a_token_is_refused(user: str) -> None:
    with pytest.raises(ValueError, match=r"write https://git\.invalid/x, and put the token into"):
        subject(repository=f"https://{user}@git.invalid/x")
