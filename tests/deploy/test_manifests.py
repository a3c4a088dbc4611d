"""The manifests of ``deploy/``: rendered, valid for Kubernetes, with pinned images and restricted
pods."""

import json
import re
from functools import lru_cache

import pytest
from kubernetes_validate import utils

from tests.deploy.documents import OVERLAYS, Render, containers, pods, predictor_pod

# The versions of Kubernetes that KFP 2.17 is tested with (its
# .github/workflows/api-server-tests.yml).
VERSIONS = ("1.33", "1.36")
# Kubernetes' own schemas do not cover the resources of Kueue, Kubeflow and KServe.
CUSTOM = {("kubeflow.org/v1alpha1", "PodDefault")} | {
    ("kueue.x-k8s.io/v1beta2", kind) for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue")
}
KSERVE = ("serving.kserve.io/v1beta1", "InferenceService")


def test_every_manifest_matches_the_schema_of_kubernetes(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Read each schema once, not once for each document.
    monkeypatch.setattr(utils, "schema_contents", lru_cache(utils.schema_contents))
    folders = [*(f"overlays/{name}" for name in OVERLAYS), "base/kueue"]
    documents = {
        json.dumps(entry, sort_keys=True) for folder in folders for entry in render(folder)
    }
    for document in map(json.loads, sorted(documents)):
        if (document["apiVersion"], document["kind"]) == KSERVE:
            assert set(document["spec"]) == {"predictor"}
            document = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": document["metadata"],
                "spec": predictor_pod(document),
            }
        if (document["apiVersion"], document["kind"]) not in CUSTOM:
            for version in VERSIONS:
                assert utils.validate(document, version, strict=True) == version


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_images_have_a_digest_or_are_of_this_machine(overlay: str, render: Render) -> None:
    for container in containers(render(f"overlays/{overlay}")):
        assert re.fullmatch(r"localhost/\S+|\S+@sha256:[0-9a-f]{64}", container["image"])


@pytest.mark.parametrize(
    "overlay", ["standalone", "multi-user", "mlflow", "kind", "search", "kserve", "kserve-oci"]
)
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
