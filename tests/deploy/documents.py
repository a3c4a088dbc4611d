"""Rendered manifests: their pods, containers and single documents."""

from collections.abc import Callable, Iterator
from typing import Any

OVERLAYS = (
    "standalone",
    "multi-user",
    "mlflow",
    "kind",
    "managed",
    "queued",
    "search",
    "kserve",
    "kserve-oci",
)
SCALING = {"minReplicas", "maxReplicas", "scaleMetric", "scaleTarget"}
"""Keys of a predictor of KServe that are none of a pod."""
Render = Callable[[str], list[dict[str, Any]]]


def pods(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        if "template" in document.get("spec", {}):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]
        elif "predictor" in document.get("spec", {}):
            yield document["metadata"]["name"], predictor_pod(document)


def predictor_pod(document: dict[str, Any]) -> dict[str, Any]:
    """Return the pod specification of an InferenceService, without its scaling keys."""
    return {
        key: value for key, value in document["spec"]["predictor"].items() if key not in SCALING
    }


def containers(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for _, pod in pods(documents):
        yield from [*pod.get("initContainers", []), *pod["containers"]]


def find(documents: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = (
        entry for entry in documents if (entry["kind"], entry["metadata"]["name"]) == (kind, name)
    )
    return found
