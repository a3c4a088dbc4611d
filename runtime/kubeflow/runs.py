"""State of a pipeline run by Kubeflow's API server. The state that the exit handler gets has no
reasons, and only the launcher updates it (kubeflow/pipelines 2.17,
backend/src/v2/component/launcher_v2.go:227): killed pods and cached last tasks leave RUNNING,
retries FAILED.
"""

import base64
import gzip
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from bifocal.http import HTTPStatusError, request
from bifocal.onnx.files import parse_json
from runtime.redaction import redact

ENDPOINT = "KFP_ENDPOINT"
PAGES = "BIFOCAL_KFP_UI"
TOKEN_FILE = "KF_PIPELINES_SA_TOKEN_PATH"
FAILED = ("Failed", "Error")
ATTEMPT = re.compile(r"\(\d+\)")


@dataclass(frozen=True)
class PipelineState:
    """State of the graph of an exit handler."""

    # Argo's phase of the graph, such as ``Running``, ``Succeeded``, ``Failed`` or ``Error``
    phase: str
    failures: Mapping[str, str] = field(
        default_factory=dict
    )  # message of the last failed pod of each failed task

    @property
    def ended(self) -> bool:
        """Whether the graph has its final phase."""
        return self.phase == "Succeeded" or self.phase in FAILED


def run_state(run_id: str, graph: str) -> PipelineState:
    """Ask ``KFP_ENDPOINT`` for ``graph`` of a run, by version 1 of the API: version 2 has no
    messages (apiserver/server/api_converter.go:1701). ``KF_PIPELINES_SA_TOKEN_PATH`` names the
    token.
    """
    endpoint = os.environ.get(ENDPOINT, "").rstrip("/")
    if not endpoint:
        raise OSError(f"{ENDPOINT} is not set")
    token = Path(os.environ.get(TOKEN_FILE, "/var/run/secrets/kubeflow/pipelines/token"))
    try:
        answer = parse_json(
            request(
                f"{endpoint}/apis/v1beta1/runs/{quote(run_id)}",
                token=token.read_text().strip() if token.is_file() else None,
            )
        )
        return parse_workflow(parse_json(answer["pipeline_runtime"]["workflow_manifest"]), graph)
    except HTTPStatusError as error:
        raise OSError(
            redact(f"Kubeflow's API at {endpoint} answered with status {error.status}")
        ) from error
    except OSError as error:
        raise OSError(redact(f"Kubeflow's API at {endpoint} does not answer ({error})")) from error
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(
            redact(f"Kubeflow's API at {endpoint} has no workflow of run {run_id} ({error!r})")
        ) from error


def parse_workflow(workflow: Mapping[str, Any], graph: str) -> PipelineState:
    """Return the state of ``graph`` in Argo's status. By Kubeflow's defaults every template has a
    retry strategy: a task or graph is a Retry node, and its attempts have numbers, as in
    ``bifocal(0).root(0).TASK(0).executor(1)``.
    """
    status = workflow.get("status", {})
    packed = status.get(
        "compressedNodes"
    )  # of a status above a megabyte: argo-workflows workflow/packer/packer.go
    entries = (
        parse_json(gzip.decompress(base64.b64decode(packed))) if packed else status.get("nodes")
    )
    nodes = {node["name"]: node for node in (entries or {}).values()}
    phase = next(
        (node["phase"] for node in nodes.values() if node.get("displayName") == graph), "unknown"
    )
    succeeded = [
        name
        for name, node in nodes.items()
        if node.get("type") == "Retry" and node["phase"] == "Succeeded"
    ]
    failures = {}
    for name, node in sorted(nodes.items(), key=lambda entry: str(entry[1].get("finishedAt"))):
        if node.get("type") != "Pod" or node["phase"] not in FAILED:
            continue
        if not any(name.startswith(f"{retried}(") for retried in succeeded):
            task = ATTEMPT.sub("", name).removesuffix(".executor").rpartition(".")[2]
            failures[task] = str(node.get("message") or "no message")
    return PipelineState(phase, failures)


def kfp_run_page(run_id: str) -> str:
    """Return the address of a run's page; "" unless ``BIFOCAL_KFP_UI`` holds the address of the
    interface."""
    address = os.environ.get(PAGES, "").rstrip("/")
    return f"{address}/#/runs/details/{quote(run_id)}" if address else ""
