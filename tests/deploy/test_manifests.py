"""The manifests of ``deploy/``: rendered, valid for Kubernetes, and in agreement with resources.yaml."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import utils
from starlette.testclient import TestClient

from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service.app import create_app
from bifocal.serving.service.live.sources import RunSource
from bifocal.serving.service.settings import Settings
from pipelines.app.serve import GRACE_SECONDS, serve_command
from pipelines.commands.run import run
from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from runtime import parameters
from tests.pipelines.compiled import documents, quick_callers

ROOT = Path(__file__).parents[2]
OVERLAYS = ("standalone", "multi-user", "mlflow", "kind", "managed", "queued", "search", "kserve", "kserve-oci")
# The versions of Kubernetes that KFP 2.17 is tested with (its .github/workflows/api-server-tests.yml).
VERSIONS = ("1.33", "1.36")
# Kubernetes' own schemas do not cover the resources of Kueue and KServe.
CUSTOM = {("kueue.x-k8s.io/v1beta2", kind) for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue")}
KSERVE = ("serving.kserve.io/v1beta1", "InferenceService")
SCALING = {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget"}
"""Keys of a predictor of KServe that are none of a pod."""
PROBES = ("startup", "liveness", "readiness")
Render = Callable[[str], list[dict[str, Any]]]


def pods(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]
        elif "predictor" in document.get("spec", {}):
            yield document["metadata"]["name"], predictor_pod(document)


def predictor_pod(document: dict[str, Any]) -> dict[str, Any]:
    """Return the pod specification of an InferenceService, without its scaling keys."""
    return {key: value for key, value in document["spec"]["predictor"].items() if key not in SCALING}


def containers(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for _, pod in pods(documents):
        yield from [*pod.get("initContainers", []), *pod["containers"]]


def find(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (entry for entry in documents if (entry["kind"], entry["metadata"]["name"]) == (kind, name))
    return found


def test_every_manifest_matches_the_schema_of_kubernetes(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    # Read each schema once, not once for each document.
    monkeypatch.setattr(utils, "schema_contents", lru_cache(utils.schema_contents))
    folders = [*(f"overlays/{name}" for name in OVERLAYS), "base/kueue"]
    documents = {json.dumps(entry, sort_keys=True) for folder in folders for entry in render(folder)}
    for document in map(json.loads, sorted(documents)):
        if (document["apiVersion"], document["kind"]) == KSERVE:
            assert set(document["spec"]) == {"predictor"}
            document = {
                "apiVersion": "v1", "kind": "Pod", "metadata": document["metadata"], "spec": predictor_pod(document)
            }  # fmt: skip
        if (document["apiVersion"], document["kind"]) not in CUSTOM:
            for version in VERSIONS:
                assert utils.validate(document, version, strict=True) == version


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_images_have_a_digest_or_are_of_this_machine(overlay: str, render: Render) -> None:
    for container in containers(render(f"overlays/{overlay}")):
        assert re.fullmatch(r"localhost/\S+|\S+@sha256:[0-9a-f]{64}", container["image"])


@pytest.mark.parametrize("overlay", ["standalone", "multi-user", "mlflow", "kind", "search", "kserve", "kserve-oci"])
def test_pods_are_restricted(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    for name, pod in pods(documents):
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
    for container in containers(documents):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"], container["name"]
        assert security["capabilities"] == {"drop": ["ALL"]}, container["name"]
        assert security["allowPrivilegeEscalation"] is False, container["name"]
        assert "memory" in container["resources"]["limits"], container["name"]


@pytest.mark.parametrize("overlay", ["standalone", "multi-user"])
def test_secrets_have_the_keys_that_the_steps_read(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    for name, keys in resources.load().secrets.items():
        assert set(find(documents, "Secret", name)["data"]) == set(keys), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_secret_of_a_container_is_in_the_overlay(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    secrets = {entry["metadata"]["name"]: entry["data"] for entry in documents if entry["kind"] == "Secret"}
    for container in containers(documents):
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                assert reference["key"] in secrets[reference["name"]] or reference.get("optional")


def test_examples_of_secrets_have_no_values_and_the_secrets_are_ignored() -> None:
    examples = sorted(ROOT.glob("deploy/overlays/*/secrets/*.env.example"))
    assert examples
    for example in examples:
        lines = [line for line in example.read_text().splitlines() if not line.startswith("#")]
        assert all(line.endswith("=") for line in lines), example
        path = example.with_suffix("").relative_to(ROOT)
        ignored = subprocess.run(["git", "check-ignore", "--quiet", str(path)], cwd=ROOT, check=False)
        assert ignored.returncode == 0, path


def test_no_password_is_in_an_address_or_a_command(render: Render) -> None:
    for container in containers(render("overlays/mlflow")):
        assert not re.search(r"//[^/@\s]+:[^/@\s]+@", json.dumps(container))


def test_the_service_of_mlflow_has_the_address_of_the_steps(render: Render) -> None:
    documents = render("overlays/mlflow")
    service = find(documents, "Service", "mlflow")
    host = f"mlflow.{service['metadata']['namespace']}.svc.cluster.local:{service['spec']['ports'][0]['port']}"
    assert resources.load().environment["MLFLOW_TRACKING_URI"] == f"http://{host}"
    (server,) = find(documents, "Deployment", "mlflow")["spec"]["template"]["spec"]["containers"]
    (allowed,) = (entry["value"] for entry in server["env"] if entry["name"] == "MLFLOW_SERVER_ALLOWED_HOSTS")
    assert host in allowed.split(",")


@pytest.mark.parametrize("file", ["pipelines/kubeflow/resources.yaml", "docs/canary.md"])
def test_the_replicas_of_the_search_service_have_the_address_of_the_canary(file: str, render: Render) -> None:
    service = find(render("overlays/search"), "Service", "search-replicas")
    address = f"dns+http://search-replicas.{service['metadata']['namespace']}.svc:{service['spec']['ports'][0]['port']}"
    assert re.findall(r"dns\+http://search-replicas\.[^\"]+", (ROOT / file).read_text()) == [address]


@pytest.mark.parametrize("overlay", ["search", "kserve"])
def test_a_replica_looks_for_releases_twice_a_minute(overlay: str, render: Render) -> None:
    arguments = next(
        container["args"] for container in containers(render(f"overlays/{overlay}")) if "args" in container
    )
    assert "--poll=30" in arguments


@pytest.mark.parametrize("overlay", ["search", "kserve"])
def test_the_secret_of_a_replica_may_have_the_key_that_deletes(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    variables = [entry for container in containers(documents) for entry in container.get("env", [])]
    (reference,) = (entry["valueFrom"]["secretKeyRef"] for entry in variables if entry["name"] == "BIFOCAL_ADMIN_KEY")
    assert reference == {"name": "search", "key": "admin_key", "optional": True}
    # The service refuses an empty key, so the example has no line for it.
    assert "admin_key" not in find(documents, "Secret", "search")["data"]


def test_repeats_of_a_driver_outlast_a_minute_without_storage() -> None:
    defaults = yaml.safe_load(yaml.safe_load((ROOT / "deploy/retries.yaml").read_text())["data"]["workflowDefaults"])
    strategy = defaults["spec"]["templateDefaults"]["retryStrategy"]
    seconds, factor = int(strategy["backoff"]["duration"].removesuffix("s")), strategy["backoff"]["factor"]
    assert sum(seconds * factor**repeat for repeat in range(int(strategy["limit"]))) > 60


def test_no_driver_writes_a_second_record_of_its_task() -> None:
    """Kubeflow refuses two records of one task; the first driver of the recorded run had written one."""
    answers = json.loads((ROOT / "tests/cluster/recorded/api_server_restarted.json").read_text())
    nodes = answers["workflow"]["status"]["nodes"].values()
    (unheard,) = (node["message"] for node in nodes if node["phase"] == "Error")
    defaults = yaml.safe_load(yaml.safe_load((ROOT / "deploy/retries.yaml").read_text())["data"]["workflowDefaults"])
    expression = defaults["spec"]["templateDefaults"]["retryStrategy"]["expression"]
    assert [text for text in re.findall(r"!\(lastRetry.message contains '(.+?)'\)", expression) if text in unheard]


@pytest.mark.parametrize("step", ["canary", "notify"])
def test_steps_that_wait_request_little_of_a_core(step: str) -> None:
    assert float(resources.load().for_step(step).cpu) <= 0.1


def test_lifecycle_rules_delete_files_of_trainings_after_the_longest_one() -> None:
    rules = json.loads((ROOT / "deploy/base/pipelines/lifecycle.json").read_text())
    cluster = resources.load()
    bucket, _, folder = cluster.trainer.folder.removeprefix("s3://").partition("/")
    assert bucket == "bifocal"
    prefixes = {rule["Filter"]["Prefix"]: rule["Expiration"]["Days"] for rule in rules if "Expiration" in rule}
    assert cluster.checkpoints is not None
    checkpoints = cluster.checkpoints.removeprefix(f"s3://{bucket}/")
    assert {f"{folder}/", f"{checkpoints}/"} == set(prefixes)
    step = cluster.for_step("train_embedding")
    longest = step.timeout * (step.retries + 1) + step.queue_timeout
    assert min(prefixes.values()) * 24 * 3600 > 2 * longest


@pytest.mark.parametrize("overlay", ["search", "kserve", "kserve-oci"])
def test_the_search_service_is_started_probed_and_ended_as_it_expects(overlay: str, render: Render) -> None:
    ((_, pod),) = pods(render(f"overlays/{overlay}"))
    (container,) = pod["containers"]
    program = ["python", "-m", "bifocal", "serve"]
    assert container["args"][: len(program)] == program
    options = {option for parameter in serve_command.params for option in parameter.opts}
    assert {argument.partition("=")[0] for argument in container["args"][len(program) :]} <= options
    with TestClient(create_app(RunSource(Path("no such run")), Settings())) as client:
        statuses = {name: client.get(container[f"{name}Probe"]["httpGet"]["path"]).status_code for name in PROBES}
    assert statuses == {"startup": 200, "liveness": 200, "readiness": 503}  # alive, but without a model
    pre_stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pre_stop + GRACE_SECONDS
    assert Settings().body_seconds < GRACE_SECONDS
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts == {"/tmp": False, "/images": True}


def test_the_service_reads_the_run_of_an_image_where_kserve_mounts_it(render: Render, demo: TrainedModel) -> None:
    ((_, pod),) = pods(render("overlays/kserve-oci"))
    (container,) = pod["containers"]
    assert "--run=/mnt/models" in container["args"]
    assert {"name": "STORAGE_URI", "value": "oci://localhost/bifocal-run:1"} in container["env"]
    lines = (ROOT / "deploy/overlays/kserve-oci/Containerfile").read_text().splitlines()
    copied = [line.split()[2:] for line in lines if line.startswith("COPY")]
    assert {target for _, target in copied} == {f"/models/{source}" for source, _ in copied}
    assert all((demo.directory / source).exists() for source, _ in copied)


def test_the_search_service_is_scaled_protected_and_reaches_mlflow(render: Render) -> None:
    documents, mlflow = render("overlays/search"), render("overlays/mlflow")
    deployment, namespace = find(documents, "Deployment", "search"), find(documents, "Namespace", "search")
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert find(documents, "HorizontalPodAutoscaler", "search")["spec"]["scaleTargetRef"]["name"] == "search"
    policy = find(documents, "NetworkPolicy", "search")
    for selector in (
        find(documents, "PodDisruptionBudget", "search")["spec"]["selector"]["matchLabels"],
        find(documents, "Service", "search")["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    (clients,) = find(mlflow, "NetworkPolicy", "mlflow")["spec"]["ingress"][0]["from"]
    assert clients["namespaceSelector"]["matchLabels"].items() <= namespace["metadata"]["labels"].items()
    (server,) = (rule for rule in policy["spec"]["egress"] if rule["ports"][0]["port"] == 5000)
    (peer,) = server["to"]
    pod = find(mlflow, "Deployment", "mlflow")["spec"]["template"]
    assert peer["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (address,) = (
        entry["value"]
        for entry in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
        if entry["name"] == "MLFLOW_TRACKING_URI"
    )
    assert address == resources.load().environment["MLFLOW_TRACKING_URI"]


def test_the_cluster_of_kind_runs_the_small_pipeline_without_gpus() -> None:
    image = "localhost:5001/bifocal@sha256:1"
    overlay = ROOT / "deploy" / "kind" / "resources.yaml"
    cluster = resources.load(images={"cpu": image, "gpu": image}, overlays=[overlay])
    values = parameters.load(ROOT / "params.yaml", [ROOT / "tests" / "small.yaml"])
    with quick_callers():
        pipeline, _ = documents(kubeflow.compile_pipeline(values, cluster, "0" * 40))
    executors = {name: entry["container"] for name, entry in pipeline["deploymentSpec"]["executors"].items()}
    assert {entry["image"] for entry in executors.values()} == {image}
    assert not [name for name, entry in executors.items() if "accelerator" in entry.get("resources", {})]


def test_the_options_of_the_end_to_end_test_exist() -> None:
    script = (ROOT / "deploy" / "kind" / "e2e.sh").read_text()
    options = {option for parameter in run.params for option in parameter.opts}
    (given,) = re.findall(r'^export BIFOCAL_CLUSTER_OPTIONS="(.*?)"', script, flags=re.MULTILINE | re.DOTALL)
    used = set(re.findall(r"--[a-z-]+", given))
    assert {"--images", "--resources", "--skip-check"} <= used <= options
