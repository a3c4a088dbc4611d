"""Program of each machine of a TrainJob: download the inputs, train with ``torchrun``, upload the model.

``torchrun`` reads the number of machines and its own rank from the variables ``PET_*`` that Kubeflow's Trainer sets.
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
    """Train on this machine and return the exit code of ``torchrun``; the first machine uploads the model.

    Args:
        job: ``folder`` on S3, names of its ``inputs``, ``values`` of the parameters, hash of the ``code``, and
            ``secrets``: for each secret, the environment variable of each key.
        folder: local folder for the inputs and the model.
        secrets: folder with a folder for each secret, which has a file for each key.
    """
    for secret, keys in job["secrets"].items():
        for key, variable in keys.items():
            if (secrets / secret / key).is_file():
                os.environ[variable] = (secrets / secret / key).read_text().strip()
    for name in job["inputs"]:
        Storage().download(f"{job['folder']}/{name}", folder / name)
    arguments = {PARAMETERS: json.dumps(job["values"]), CODE: job["code"]}
    executor_input = {
        "inputs": {"parameterValues": arguments, "artifacts": _declare(folder, job["inputs"])},
        "outputs": {"artifacts": _declare(folder, ["embedding"]), "outputFile": str(folder / "executor_output.json")},
    }
    command = ["-m", "components", "train_embedding", "--executor-input", json.dumps(executor_input)]
    code = subprocess.run([sys.executable, "-m", "torch.distributed.run", *command], check=False).returncode
    if code == 0 and os.environ.get("PET_NODE_RANK", "0") == "0":
        Storage().upload(folder / "embedding", f"{job['folder']}/embedding")
    return code


def _declare(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    return {name: {"artifacts": [{"name": name, "uri": str(folder / name)}]} for name in names}


if __name__ == "__main__":
    sys.exit(main(json.loads(os.environ[JOB]), Path("/tmp/train_job"), Path(SECRETS)))
