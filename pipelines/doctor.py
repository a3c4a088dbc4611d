"""What is missing on this machine, and the command that mends it."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
FREE_GB = 10
SECONDS = 5
# 'dvc status --cloud' asks nobody as long as no stage has run.
ASK_REMOTE = "from dvc.repo import Repo; store = Repo().cloud.get_remote_odb(); store.fs.exists(store.path)"


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        good: whether it is as it should be; None if it is not set up, which a laptop needs not.
        mend: a command, or what to do.
    """

    name: str
    good: bool | None
    said: str
    mend: str = ""


def examine() -> Iterator[Finding]:
    """Every check, one after the other; none of them writes anything."""
    for check in CHECKS:
        yield check()


def python() -> Finding:
    """The version that pyproject.toml asks for."""
    found = ".".join(map(str, sys.version_info[:3]))
    wanted = _project()["requires-python"]
    good = Requirement(f"python{wanted}").specifier.contains(found)
    return Finding("Python", good, f"{found}, {wanted} is needed", "make setup PYTHON=python3.11")


def packages() -> Finding:
    """What pyproject.toml names, in the versions it allows."""
    project = _project()
    extras = project["optional-dependencies"]
    wrong = []
    for text in [*project["dependencies"], *extras["stages"], *extras["pipelines"]]:
        requirement = Requirement(text)
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            wrong.append(f"{requirement.name} is {version}, {requirement.specifier} is needed")
    return Finding("packages", not wrong, "; ".join(wrong) or "all there", "rm -f .venv/ready && make setup")


def gpu() -> Finding:
    """CUDA, as torch sees it, and as onnxruntime does."""
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("onnxruntime")):
        return Finding("GPU", False, "torch or onnxruntime is missing", "make setup")
    import onnxruntime
    import torch

    providers = onnxruntime.get_available_providers()
    said = f"torch {'sees ' + torch.cuda.get_device_name() if torch.cuda.is_available() else 'sees none'}; "
    said += f"onnxruntime has {', '.join(providers)}"
    if not torch.cuda.is_available():
        card = shutil.which("nvidia-smi") is not None
        mend = "nvidia-smi  # the driver must be as new as torch.version.cuda"
        return Finding("GPU", False if card else None, said, mend if card else "")
    good = "CUDAExecutionProvider" in providers
    return Finding("GPU", good, said, "uv pip uninstall onnxruntime && uv pip install --reinstall onnxruntime-gpu")


def disk() -> Finding:
    """Space for artifacts."""
    free = shutil.disk_usage(ROOT).free / 1e9
    return Finding("disk", free >= FREE_GB, f"{free:.0f} GB free, {FREE_GB} are advised", "dvc gc --workspace")


def dvc_remote() -> Finding:
    """A default remote, and whether it answers."""
    listed = _call(sys.executable, "-m", "dvc", "remote", "default")
    if listed.returncode or not listed.stdout.strip() or "No default" in listed.stdout:
        return Finding("DVC remote", None, "none", "dvc remote add --default s3 s3://BUCKET/dvc")
    name = listed.stdout.strip()
    asked = _call(sys.executable, "-c", ASK_REMOTE)
    good = asked.returncode == 0
    said = f"{name} answers" if good else f"{name}: {_last(asked.stderr) or asked.returncode}"
    return Finding("DVC remote", good, said, f"dvc remote modify --local {name} endpointurl URL  # and see S3, below")


def s3() -> Finding:
    """Keys, and an endpoint that takes them."""
    if not ({"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL"} & set(os.environ)):
        return Finding(
            "S3", None, "no keys in the environment", "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=..."
        )
    from runtime.s3.errors import StorageError
    from runtime.s3.storage import Storage

    try:
        buckets = Storage(attempts=1, timeout=SECONDS).buckets()
    except StorageError as error:
        mend = "export AWS_ENDPOINT_URL=http://... BIFOCAL_S3_PATH_STYLE=1  # for MinIO and its like; or other keys"
        # What went wrong, without what a transfer would do about it.
        return Finding("S3", False, str(error.__cause__ or error), mend)
    return Finding("S3", True, f"{len(buckets)} buckets")


def mlflow() -> Finding:
    """The tracking server, if one is named."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if re.match(r"[\w.-]+:\d", uri):
        said = f"MLFLOW_TRACKING_URI is {uri}, which names no server without http://"
        return Finding("MLflow", False, said, f"export MLFLOW_TRACKING_URI=http://{uri}")
    if not uri.startswith("http"):
        mend = "make mlflow & export MLFLOW_TRACKING_URI=http://127.0.0.1:5000"
        return Finding("MLflow", None, f"runs go to {uri or 'sqlite:///mlflow.db'}, no server", mend)
    return _endpoint("MLflow", f"{uri}/health", "make mlflow; 403: add this name to MLFLOW_HOSTS")


def kubeflow() -> Finding:
    """The pipelines' API, if one is named."""
    uri = os.environ.get("KFP_ENDPOINT")
    forward = "kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888"
    if not uri:
        return Finding(
            "Kubeflow", None, "KFP_ENDPOINT is not set", f"{forward} & export KFP_ENDPOINT=http://localhost:8888"
        )
    if not uri.startswith("http"):
        said = f"KFP_ENDPOINT is {uri}, which names no server without http://"
        return Finding("Kubeflow", False, said, f"export KFP_ENDPOINT=http://{uri}")
    return _endpoint("Kubeflow", f"{uri}/apis/v2beta1/healthz", forward)


CHECKS: tuple[Callable[[], Finding], ...] = (python, packages, gpu, disk, dvc_remote, s3, mlflow, kubeflow)


def _endpoint(name: str, address: str, mend: str) -> Finding:
    try:
        with urlopen(address, timeout=SECONDS):
            return Finding(name, True, f"{address} answers")
    except (OSError, ValueError, HTTPException) as error:  # away, no address, no server of HTTP
        return Finding(name, False, f"{address}: {error}", mend)


def _project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _call(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
