"""A cluster under test, by its public interfaces: ``python -m pipelines``, kubectl, and Kubeflow's
API over HTTP."""

import base64
import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

if TYPE_CHECKING:  # importing mlflow takes seconds, also where these tests are skipped
    from mlflow import MlflowClient
    from mlflow.entities import Run

# runtime/mlflow: names and tags of the pipeline runs.
EXPERIMENT, KFP_RUN_TAG, PARENT_TAG = "bifocal", "kfp.pipeline_run_id", "mlflow.parentRunId"
ROOT = Path(__file__).parents[2]
POLICY = Path("pipelines/policies/promotion.yaml")
SMALL = ("--recipe", "tests/small.yaml")
ENDED = ("SUCCEEDED", "FAILED", "CANCELED", "SKIPPED")
EXECUTOR = re.compile(r"\.(?P<task>[^.()]+)(\(\d+\))?\.executor\(\d+\)$")
POLL_SECONDS, OUTAGE_SECONDS = 5.0, 180.0


@dataclass(frozen=True)
class Cluster:
    """Kubeflow Pipelines at ``endpoint``, whose runs are in ``namespace``.

    Args:
        checkout: folder in which ``python -m pipelines`` runs.
        options: options of every ``run``, ``preflight`` and ``schedule apply``, such as
            ``--images images.json``.
    """

    endpoint: str
    namespace: str
    checkout: Path
    options: tuple[str, ...]

    def pipelines(self, command: str, *arguments: str) -> str:
        """Run ``python -m pipelines COMMAND``; return its output."""
        call = [sys.executable, "-m", "pipelines", command, *arguments]
        environment = {**os.environ, "KFP_ENDPOINT": self.endpoint}
        done = subprocess.run(
            call, cwd=self.checkout, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{' '.join(call)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def submit(self, *arguments: str) -> str:
        """Start a run of the pipeline; return its id."""
        return self.pipelines("run", "--runner", "cluster", *self.options, *arguments).splitlines()[
            -1
        ]

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace of the runs; return its output."""
        call = ["kubectl", "--namespace", self.namespace, *arguments]
        return subprocess.run(call, capture_output=True, text=True, check=True).stdout

    def get(self, path: str) -> dict[str, Any]:
        """Return the answer of Kubeflow's API, version 2, to ``path``."""
        deadline = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                with urlopen(f"{self.endpoint}/apis/v2beta1/{path}", timeout=30) as response:
                    answer: dict[str, Any] = json.loads(response.read())
                return answer
            except OSError:  # a port-forward that is made again, a server that is restarted
                if time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def wait(self, run: str, seconds: float = 3600.0) -> dict[str, Any]:
        """Wait until a run ends; return it as Kubeflow's API has it."""
        deadline = time.monotonic() + seconds
        while (found := self.get(f"runs/{run}")).get("state") not in ENDED:
            assert time.monotonic() < deadline, (
                f"run {run} is {found.get('state')} after {seconds:g} s"
            )
            time.sleep(POLL_SECONDS)
        return found

    def workflow(self, run: str) -> dict[str, Any]:
        """Return Argo's workflow of a run, whose nodes it packs above a megabyte."""
        answer = json.loads(
            self.kubectl(
                "get", "workflows", "--selector", f"pipeline/runid={run}", "--output", "json"
            )
        )
        (workflow,) = answer["items"]
        if packed := workflow["status"].get("compressedNodes"):
            workflow["status"]["nodes"] = json.loads(gzip.decompress(base64.b64decode(packed)))
        found: dict[str, Any] = workflow
        return found

    def ran(self, run: str) -> set[str]:
        """Return the tasks of a run that started a container: those from the cache start none."""
        return {task for task, _ in self._attempts(run)}

    def attempts(self, run: str, task: str) -> list[str]:
        """Return the phase of each attempt of a task, in the order of their start."""
        return [str(node["phase"]) for name, node in self._attempts(run) if name == task]

    def notice(self, run: str) -> str:
        """Return the notice of a run that the Deployment ``notices`` has received, "" if none."""
        lines = self.kubectl("logs", "deployment/notices", "--tail=-1").splitlines()
        return next((line for line in lines if run in line), "")

    def parent(self, registry: "MlflowClient", run: str) -> "Run":
        """Return MLflow's parent run of a pipeline run."""
        runs = _search(registry, f"tags.`{KFP_RUN_TAG}` = '{run}'")
        (parent,) = (entry for entry in runs if PARENT_TAG not in entry.data.tags)
        return parent

    def children(self, registry: "MlflowClient", parent: "Run") -> "list[Run]":
        """Return MLflow's runs of the stages of a parent run."""
        return _search(registry, f"tags.`{PARENT_TAG}` = '{parent.info.run_id}'")

    def _attempts(self, run: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        nodes = self.workflow(run)["status"]["nodes"].values()
        for node in sorted(nodes, key=lambda entry: str(entry["startedAt"])):
            found = EXECUTOR.search(node["name"])
            if found and node["type"] == "Pod":
                yield found["task"], node


def from_environment(checkout: Path) -> Cluster:
    """Return the cluster that the variables of ``conftest.py`` name."""
    options = shlex.split(os.environ.get("BIFOCAL_CLUSTER_OPTIONS", ""))
    absolute = [
        str(Path(option).resolve()) if Path(option).is_file() else option for option in options
    ]
    namespace = os.environ.get("KFP_NAMESPACE", "kubeflow")
    return Cluster(os.environ["KFP_ENDPOINT"].rstrip("/"), namespace, checkout, tuple(absolute))


def _search(registry: "MlflowClient", condition: str) -> "list[Run]":
    experiment = registry.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None, f"MLflow has no experiment {EXPERIMENT}"
    return list(registry.search_runs([experiment.experiment_id], condition))
