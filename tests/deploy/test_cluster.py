"""Settings of a cluster in agreement with resources.yaml: MLflow, retries of drivers, lifecycle
rules, kind."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

from pipelines.commands.cluster import run
from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.kubeflow.namespace import TOKEN
from runtime import parameters
from runtime.kubeflow.runs import TOKEN_FILE
from tests.deploy.documents import Render, find
from tests.pipelines.compiled import documents, quick_callers

ROOT = Path(__file__).parents[2]


def test_the_service_of_mlflow_has_the_address_of_the_steps(render: Render) -> None:
    documents = render("overlays/mlflow")
    service = find(documents, "Service", "mlflow")
    host = f"mlflow.{service['metadata']['namespace']}.svc.cluster.local:{service['spec']['ports'][0]['port']}"
    assert resources.load().environment["MLFLOW_TRACKING_URI"] == f"http://{host}"
    (server,) = find(documents, "Deployment", "mlflow")["spec"]["template"]["spec"]["containers"]
    (allowed,) = (
        entry["value"] for entry in server["env"] if entry["name"] == "MLFLOW_SERVER_ALLOWED_HOSTS"
    )
    assert host in allowed.split(",")


def test_repeats_of_a_driver_outlast_a_minute_without_storage() -> None:
    defaults = yaml.safe_load(
        yaml.safe_load((ROOT / "deploy/retries.yaml").read_text())["data"]["workflowDefaults"]
    )
    strategy = defaults["spec"]["templateDefaults"]["retryStrategy"]
    seconds, factor = (
        int(strategy["backoff"]["duration"].removesuffix("s")),
        strategy["backoff"]["factor"],
    )
    assert sum(seconds * factor**repeat for repeat in range(int(strategy["limit"]))) > 60


def test_no_driver_writes_a_second_record_of_its_task() -> None:
    """Kubeflow refuses two records of one task; the first driver of the recorded run had written
    one."""
    answers = json.loads((ROOT / "tests/cluster/recorded/api_server_restarted.json").read_text())
    nodes = answers["workflow"]["status"]["nodes"].values()
    (unheard,) = (node["message"] for node in nodes if node["phase"] == "Error")
    defaults = yaml.safe_load(
        yaml.safe_load((ROOT / "deploy/retries.yaml").read_text())["data"]["workflowDefaults"]
    )
    expression = defaults["spec"]["templateDefaults"]["retryStrategy"]["expression"]
    assert [
        text
        for text in re.findall(r"!\(lastRetry.message contains '(.+?)'\)", expression)
        if text in unheard
    ]


def test_notify_gets_a_token_for_the_api_of_a_server_with_several_users(render: Render) -> None:
    spec = find(render("overlays/multi-user"), "PodDefault", TOKEN)["spec"]
    labels = resources.load().for_step("notify").labels
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    (path,) = (entry["value"] for entry in spec["env"] if entry["name"] == TOKEN_FILE)
    (mount,), (volume,) = spec["volumeMounts"], spec["volumes"]
    (source,) = (entry["serviceAccountToken"] for entry in volume["projected"]["sources"])
    assert mount["name"] == volume["name"]
    assert path == f"{mount['mountPath']}/{source['path']}"
    assert source["audience"] == "pipelines.kubeflow.org"


def test_teams_and_projects_share_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for namespace, project in itertools.product((None, "team-a", "team-b"), (None, "toys")):
        monkeypatch.delenv("KFP_NAMESPACE", raising=False)
        if namespace:
            monkeypatch.setenv("KFP_NAMESPACE", namespace)
        cluster = resources.load(project=project)
        folders = [cluster.checkpoints, cluster.trainer.folder, cluster.monitoring.folder]
        assert all(
            str(folder).endswith(f"/{namespace or 'kubeflow'}/{project or 'bifocal'}")
            for folder in folders
        )
        found += folders
    assert len(set(found)) == len(found) == 18


@pytest.mark.parametrize("step", ["canary", "notify"])
def test_steps_that_wait_request_little_of_a_core(step: str) -> None:
    assert float(resources.load().for_step(step).cpu) <= 0.1


def test_lifecycle_rules_delete_files_of_trainings_after_the_longest_one() -> None:
    rules = json.loads((ROOT / "deploy/base/pipelines/lifecycle.json").read_text())
    cluster = resources.load()
    bucket, _, folder = cluster.trainer.folder.removeprefix("s3://").partition("/")
    assert bucket == "bifocal"
    prefixes = {
        rule["Filter"]["Prefix"]: rule["Expiration"]["Days"]
        for rule in rules
        if "Expiration" in rule
    }
    assert cluster.checkpoints is not None
    checkpoints = cluster.checkpoints.removeprefix(f"s3://{bucket}/")
    own = "kubeflow/bifocal"  # namespace and project
    assert {folder.removesuffix(own), checkpoints.removesuffix(own)} == set(prefixes)
    step = cluster.for_step("train_embedding")
    longest = step.timeout * (step.retries + 1) + step.queue_timeout
    assert min(prefixes.values()) * 24 * 3600 > 2 * longest


def test_the_cluster_of_kind_runs_the_small_pipeline_without_gpus() -> None:
    image = "localhost:5001/bifocal@sha256:1"
    overlay = ROOT / "deploy" / "kind" / "resources.yaml"
    cluster = resources.load(images={"cpu": image, "gpu": image}, overlays=[overlay])
    values = parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])
    with quick_callers():
        pipeline, _ = documents(kubeflow.compile_pipeline(values, cluster, "0" * 40))
    executors = {
        name: entry["container"] for name, entry in pipeline["deploymentSpec"]["executors"].items()
    }
    assert {entry["image"] for entry in executors.values()} == {image}
    assert not [
        name for name, entry in executors.items() if "accelerator" in entry.get("resources", {})
    ]


def test_the_options_of_the_end_to_end_test_exist() -> None:
    script = (ROOT / "deploy" / "kind" / "e2e.sh").read_text()
    options = {option for parameter in run.params for option in parameter.opts}
    (given,) = re.findall(
        r'^export BIFOCAL_CLUSTER_OPTIONS="(.*?)"', script, flags=re.MULTILINE | re.DOTALL
    )
    used = set(re.findall(r"--[a-z-]+", given))
    assert {"--images", "--resources", "--skip-check"} <= used <= options
