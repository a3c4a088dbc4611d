"""kubectl for tests."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from tests.cluster.nodes.start import run


def kubectl(*arguments: object, documents: Sequence[dict[str, Any]] | None = None) -> str:
    """Run kubectl, with ``documents`` as its file; return its output."""
    if documents is None:
        return run("kubectl", *arguments)
    return run("kubectl", *arguments, "--filename", "-", input=yaml.safe_dump_all(documents))


@dataclass(frozen=True)
class Namespace:
    """A namespace, and what kubectl does in it."""

    name: str

    def kubectl(self, *arguments: object, **options: Any) -> str:
        return kubectl("--namespace", self.name, *arguments, **options)

    def pods(self, selector: str = "") -> dict[str, str]:
        """Return the node of each pod that runs, by its name."""
        options = ("--selector", selector, "--field-selector", "status.phase=Running")
        answer = json.loads(self.kubectl("get", "pods", *options, "--output", "json"))
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in answer["items"]
            if "deletionTimestamp" not in pod["metadata"]
        }
