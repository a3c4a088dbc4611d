"""The search service on a cluster: its options, probes, replicas and network."""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service.app import create_app
from bifocal.serving.service.models import RunSource
from bifocal.serving.service.settings import Settings
from pipelines.app.serve import GRACE_SECONDS, serve_command
from pipelines.kubeflow import resources
from tests.deploy.documents import Render, containers, find, pods

ROOT = Path(__file__).parents[2]
PROBES = ("startup", "liveness", "readiness")


@pytest.mark.parametrize("file", ["pipelines/kubeflow/resources.yaml", "docs/canary.md"])
def test_the_replicas_of_the_search_service_have_the_address_of_the_canary(
    file: str, render: Render
) -> None:
    service = find(render("overlays/search"), "Service", "search-replicas")
    address = f"dns+http://search-replicas.{service['metadata']['namespace']}.svc:{service['spec']['ports'][0]['port']}"
    assert re.findall(r"dns\+http://search-replicas\.[^\"]+", (ROOT / file).read_text()) == [
        address
    ]


@pytest.mark.parametrize("overlay", ["search", "kserve"])
def test_a_replica_looks_for_releases_twice_a_minute(overlay: str, render: Render) -> None:
    arguments = next(
        container["args"]
        for container in containers(render(f"overlays/{overlay}"))
        if "args" in container
    )
    assert "--poll=30" in arguments


@pytest.mark.parametrize("overlay", ["search", "kserve", "kserve-oci"])
def test_the_search_service_is_started_probed_and_ended_as_it_expects(
    overlay: str, render: Render
) -> None:
    ((_, pod),) = pods(render(f"overlays/{overlay}"))
    (container,) = pod["containers"]
    program = ["python", "-m", "bifocal", "serve"]
    assert container["args"][: len(program)] == program
    options = {option for parameter in serve_command.params for option in parameter.opts}
    assert {argument.partition("=")[0] for argument in container["args"][len(program) :]} <= options
    with TestClient(create_app(RunSource(Path("no such run")), Settings())) as client:
        statuses = {
            name: client.get(container[f"{name}Probe"]["httpGet"]["path"]).status_code
            for name in PROBES
        }
    assert statuses == {
        "startup": 200,
        "liveness": 200,
        "readiness": 503,
    }  # alive, but without a model
    pre_stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pre_stop + GRACE_SECONDS
    assert Settings().body_seconds < GRACE_SECONDS
    mounts = {
        mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]
    }
    assert mounts == {"/tmp": False, "/images": True}


def test_the_service_reads_the_run_of_an_image_where_kserve_mounts_it(
    render: Render, demo: TrainedModel
) -> None:
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
    deployment, namespace = (
        find(documents, "Deployment", "search"),
        find(documents, "Namespace", "search"),
    )
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    assert (
        find(documents, "HorizontalPodAutoscaler", "search")["spec"]["scaleTargetRef"]["name"]
        == "search"
    )
    policy = find(documents, "NetworkPolicy", "search")
    for selector in (
        find(documents, "PodDisruptionBudget", "search")["spec"]["selector"]["matchLabels"],
        find(documents, "Service", "search")["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels
    (clients,) = find(mlflow, "NetworkPolicy", "mlflow")["spec"]["ingress"][0]["from"]
    assert (
        clients["namespaceSelector"]["matchLabels"].items()
        <= namespace["metadata"]["labels"].items()
    )
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
