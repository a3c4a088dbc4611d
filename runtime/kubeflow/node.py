"""Program and pod of each machine of a TrainJob: download, train with ``torchrun``, upload; Trainer
sets ``PET_*``."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from bifocal.progress import log_line
from runtime.artifacts import MANIFEST
from runtime.kubeflow.executor import CODE, PARAMETERS
from runtime.s3.checkpoints import FOLDER
from runtime.s3.storage import Storage
from runtime.spec import StrictModel

SETTINGS = "BIFOCAL_TRAIN_NODES"
"""Environment variable with the ``NodeSettings`` as JSON."""
JOB, SECRETS = "BIFOCAL_TRAIN_JOB", "/secrets"
MODEL, CHECKPOINTS = "embedding", "checkpoints"


class NodeSettings(StrictModel):
    """Pods of the job. No result depends on them: they are a variable of the step, which is in no
    cache key."""

    runtime: str = Field(description="runtime of Kubeflow's Trainer, such as torch-distributed")
    folder: str = Field(
        pattern=r"^s3://[^/]+/.+",
        description="folder on S3 for the inputs, checkpoints and models of the jobs",
    )
    resources: dict[str, str] = Field(description="Kubernetes resources of each machine")
    processes: int = Field(ge=1, description="processes on each machine, one per GPU")
    environment: list[str] = Field(description="variables of this step that each machine gets")
    secrets: dict[str, dict[str, str]] = Field(
        description="name of the secret: {key: environment variable}"
    )
    shared_memory: str | None = Field(description="bytes of /dev/shm")
    volumes: list[dict[str, Any]] = Field(
        description="Kubernetes volumes, each with its mountPath, and subPath"
    )
    labels: dict[str, str]
    annotations: dict[str, str]
    node_selector: dict[str, str] = Field(description="labels that a machine must have")
    node_affinity: list[dict[str, Any]] = Field(
        description="match expressions that a machine must all meet"
    )
    tolerations: list[dict[str, Any]]
    image_pull_secrets: list[str]
    security_context: dict[str, Any] | None = Field(description="Kubernetes' PodSecurityContext")
    timeout: int = Field(ge=1, description="of the job, in seconds")
    queue_timeout: int = Field(ge=0, description="seconds that the job may wait for machines")


def main(job: Mapping[str, Any], folder: Path, secrets: Path) -> int:
    """Train on this machine, return the exit code of ``torchrun``; a machine restarted after the
    upload does nothing. ``job`` is the description by ``train_distributed``, ``secrets`` has a
    folder per secret with a file per key.
    """
    # This process is number 1 of its container: without a handler, the kernel ignores SIGTERM for
    # it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    for secret, keys in job["secrets"].items():
        for key, variable in keys.items():
            if (secrets / secret / key).is_file():
                os.environ[variable] = (secrets / secret / key).read_text().strip()
    storage = Storage()
    if storage.exists(f"{job['folder']}/{MODEL}/{MANIFEST}"):
        log_line("the model is complete")
        return 0
    for name in job["inputs"]:
        storage.download(f"{job['folder']}/{name}", folder / name)
    arguments = {PARAMETERS: json.dumps(job["values"]), CODE: job["code"]}
    executor_input = {
        "inputs": {"parameterValues": arguments, "artifacts": _declare(folder, job["inputs"])},
        "outputs": {
            "artifacts": _declare(folder, [MODEL]),
            "outputFile": str(folder / "executor_output.json"),
        },
    }
    code = _torchrun(
        job["processes"],
        ["-m", "components", "train_embedding", "--executor-input", json.dumps(executor_input)],
        os.environ | {FOLDER: f"{job['folder']}/{CHECKPOINTS}"},
    )
    if code == 0 and os.environ.get("PET_NODE_RANK", "0") == "0":
        storage.upload(folder / MODEL, f"{job['folder']}/{MODEL}")
    return code


def _torchrun(processes: int, arguments: list[str], environment: Mapping[str, str]) -> int:
    """Run ``torchrun`` and return its exit code; it passes SIGTERM on to the training, which
    uploads a checkpoint."""
    # Not PET_NPROC_PER_NODE: without GPUs, the Trainer sets it to the number of cores.
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={processes}",
        *arguments,
    ]
    process = subprocess.Popen(command, env=environment)
    signal.signal(signal.SIGTERM, lambda number, frame: process.send_signal(number))
    return process.wait()


def _declare(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    return {name: {"artifacts": [{"name": name, "uri": str(folder / name)}]} for name in names}


if __name__ == "__main__":
    sys.exit(
        main(json.loads(os.environ[JOB]), Path(tempfile.gettempdir()) / "train_job", Path(SECRETS))
    )
