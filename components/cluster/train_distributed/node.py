"""What each machine of a TrainJob runs: fetch the inputs, train by ``torchrun``, and on the first store the model.

``torchrun`` reads from ``PET_*``, which Kubeflow's Trainer sets, how many machines there are and which this one is.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from runtime.kfp_executor import CODE, PARAMETERS
from runtime.s3.storage import Storage

JOB, SECRETS = "BIFOCAL_TRAIN_JOB", "/secrets"


def main(job: Mapping[str, Any], folder: Path, secrets: Path) -> int:
    """Do the part of this machine; returns the exit code of ``torchrun``.

    Args:
        job: ``folder`` on S3, names of the ``inputs`` there, ``values`` of the parameters, hash of the ``code``, and of
            each of the ``secrets`` the environment variable that a key becomes.
        folder: for the inputs and the model.
        secrets: a folder for each, a file for each key.
    """
    for secret, keys in job["secrets"].items():
        for key, variable in keys.items():
            if (secrets / secret / key).is_file():
                os.environ[variable] = (secrets / secret / key).read_text().strip()
    for name in job["inputs"]:
        Storage().download(f"{job['folder']}/{name}", folder / name)
    arguments = {PARAMETERS: json.dumps(job["values"]), CODE: job["code"]}
    message = {
        "inputs": {"parameterValues": arguments, "artifacts": _described(folder, job["inputs"])},
        "outputs": {"artifacts": _described(folder, ["embedding"]), "outputFile": str(folder / "executor_output.json")},
    }
    command = ["-m", "components", "train_embedding", "--executor-input", json.dumps(message)]
    code = subprocess.run([sys.executable, "-m", "torch.distributed.run", *command], check=False).returncode
    if code == 0 and os.environ.get("PET_NODE_RANK", "0") == "0":
        Storage().upload(folder / "embedding", f"{job['folder']}/embedding")
    return code


def _described(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    return {name: {"artifacts": [{"name": name, "uri": str(folder / name)}]} for name in names}


if __name__ == "__main__":
    sys.exit(main(json.loads(os.environ[JOB]), Path("/tmp/train_job"), Path(SECRETS)))
