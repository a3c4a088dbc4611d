"""``python -m pipelines doctor``: checks of this machine; each failed check names the command that
fixes it."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from packaging.requirements import Requirement

from runtime.checkout import tracking_uri
from runtime.redaction import redact

ROOT = Path(__file__).parent.parent
MIN_FREE_GB = 10
# Without --all-commits and the experiments, 'dvc gc' deletes the outputs of other commits, and of
# trials.
FREE_DISK = (
    "dvc gc --all-commits --all-experiments --dry  # lists unused outputs; run it again "
    "without --dry"
)
TIMEOUT_SECONDS = 5
# 'dvc status --cloud' does not contact the remote before a first stage has run.
CONTACT_REMOTE = (
    "from dvc.repo import Repo; store = Repo().cloud.get_remote_odb(); store.fs.exists(store.path)"
)


@dataclass(frozen=True)
class CheckResult:
    """State that a check observed, and a command that fixes it; ``ok`` is None if the service is
    not configured."""

    name: str
    ok: bool | None
    message: str
    fix: str = ""


def run_checks() -> Iterator[CheckResult]:
    """Run every check in order. No check writes anything, and no result holds a credential."""
    for check in CHECKS:
        result = check()
        yield replace(result, message=redact(result.message), fix=redact(result.fix))


def python() -> CheckResult:
    """Check the Python version against pyproject.toml."""
    version = ".".join(map(str, sys.version_info[:3]))
    required = _project()["requires-python"]
    ok = Requirement(f"python{required}").specifier.contains(version)
    return CheckResult(
        "Python", ok, f"{version}, {required} is needed", "make setup PYTHON=python3.11"
    )


def packages() -> CheckResult:
    """Check the installed packages against the version ranges of pyproject.toml."""
    project = _project()
    problems = []
    for requirement in _requirements(
        project["dependencies"], project["optional-dependencies"], {"pipelines"}
    ):
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement.name} is {version}, {requirement.specifier} is needed")
    message = "; ".join(problems) or "all installed"
    return CheckResult("packages", not problems, message, "rm -f .venv/ready && make setup")


def _requirements(
    texts: Iterable[str], extras: Mapping[str, Sequence[str]], wanted: Iterable[str]
) -> Iterator[Requirement]:
    """Yield the requirements in ``texts`` and of the wanted extras, which may name further
    extras."""
    for requirement in map(
        Requirement, [*texts, *(text for name in sorted(wanted) for text in extras[name])]
    ):
        if requirement.name == "bifocal-vse":
            yield from _requirements([], extras, requirement.extras)
        else:
            yield requirement


def gpu() -> CheckResult:
    """Check CUDA in torch and in onnxruntime."""
    if not (importlib.util.find_spec("torch") and importlib.util.find_spec("onnxruntime")):
        return CheckResult("GPU", False, "torch or onnxruntime is missing", "make setup")
    import onnxruntime
    import torch

    providers = onnxruntime.get_available_providers()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no device"
    message = f"torch: {device}; onnxruntime: {', '.join(providers)}"
    if not torch.cuda.is_available():
        has_driver = shutil.which("nvidia-smi") is not None
        fix = "nvidia-smi  # the driver must be as new as torch.version.cuda"
        return CheckResult("GPU", False if has_driver else None, message, fix if has_driver else "")
    ok = "CUDAExecutionProvider" in providers
    return CheckResult(
        "GPU",
        ok,
        message,
        "uv pip uninstall onnxruntime && uv pip install --reinstall onnxruntime-gpu",
    )


def disk() -> CheckResult:
    """Check the free space for artifacts."""
    free = shutil.disk_usage(ROOT).free / 1e9
    message = f"{free:.0f} GB free, {MIN_FREE_GB} GB are recommended"
    return CheckResult("disk", free >= MIN_FREE_GB, message, FREE_DISK)


def dvc_remote() -> CheckResult:
    """Check that DVC has a default remote that answers."""
    listing = _run(sys.executable, "-m", "dvc", "remote", "default")
    if listing.returncode or not listing.stdout.strip() or "No default" in listing.stdout:
        return CheckResult(
            "DVC remote", None, "none", "dvc remote add --default s3 s3://BUCKET/dvc"
        )
    name = listing.stdout.strip()
    contact = _run(sys.executable, "-c", CONTACT_REMOTE)
    ok = contact.returncode == 0
    error = (contact.stderr.strip().splitlines() or [str(contact.returncode)])[-1]
    message = f"{name} answers" if ok else f"{name}: {error}"
    fix = f"dvc remote modify --local {name} endpointurl URL  # and see the check of S3 below"
    return CheckResult("DVC remote", ok, message, fix)


def s3() -> CheckResult:
    """Check that the S3 endpoint accepts the credentials of the environment."""
    file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser()
    names = {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ENDPOINT_URL"}
    if not names & set(os.environ) and not file.is_file():
        fix = "export AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=..."
        return CheckResult("S3", None, "no credentials in the environment", fix)
    from runtime.s3.storage import Storage
    from runtime.s3.uri import StorageError

    try:
        buckets = Storage(attempts=1, timeout=TIMEOUT_SECONDS).buckets()
    except StorageError as error:
        fix = (
            "export AWS_ENDPOINT_URL=http://... BIFOCAL_S3_PATH_STYLE=1  # for MinIO; "
            "otherwise check the credentials"
        )
        # Only the cause: the storage's own message is about resuming a transfer.
        return CheckResult("S3", False, str(error.__cause__ or error), fix)
    found = "keys are valid" if buckets is None else f"{len(buckets)} buckets"
    return CheckResult("S3", True, found)


def mlflow() -> CheckResult:
    """Check the MLflow server, if MLFLOW_TRACKING_URI names one."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if re.match(r"[\w.-]+:\d", uri):
        message = f"MLFLOW_TRACKING_URI is {uri}, expected an address that starts with http://"
        return CheckResult("MLflow", False, message, f"export MLFLOW_TRACKING_URI=http://{uri}")
    if not uri.startswith("http"):
        fix = "make mlflow & export MLFLOW_TRACKING_URI=http://127.0.0.1:5000"
        return CheckResult("MLflow", None, f"runs are stored in {tracking_uri()}, no server", fix)
    from runtime.mlflow.connection import connect, find_experiment, mlflow_errors_as_oserror

    try:
        with mlflow_errors_as_oserror():
            find_experiment(connect())
    except OSError as error:
        fix = "make mlflow; for error 403 add this host to MLFLOW_HOSTS"
        return CheckResult("MLflow", False, f"{uri}: {error}", fix)
    return CheckResult("MLflow", True, f"{uri} answers")


def kubeflow() -> CheckResult:
    """Check the Kubeflow Pipelines API, if KFP_ENDPOINT names one."""
    uri = os.environ.get("KFP_ENDPOINT")
    forward = "kubectl port-forward --namespace kubeflow service/ml-pipeline 8888:8888"
    if not uri:
        fix = f"{forward} & export KFP_ENDPOINT=http://localhost:8888"
        return CheckResult("Kubeflow", None, "KFP_ENDPOINT is not set", fix)
    if not uri.startswith("http"):
        message = f"KFP_ENDPOINT is {uri}, expected an address that starts with http://"
        return CheckResult("Kubeflow", False, message, f"export KFP_ENDPOINT=http://{uri}")
    from pipelines.kubeflow.client import find_pipelines, kfp_client

    try:
        with kfp_client() as client:
            find_pipelines(client)
    except (OSError, ValueError) as error:
        return CheckResult("Kubeflow", False, f"{uri}: {error}", forward)
    return CheckResult("Kubeflow", True, f"{uri} answers")


CHECKS: tuple[Callable[[], CheckResult], ...] = (
    python,
    packages,
    gpu,
    disk,
    dvc_remote,
    s3,
    mlflow,
    kubeflow,
)


def _project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@click.command()
def doctor() -> None:
    """Check this machine, and print a command for each problem."""
    failures = 0
    for result in run_checks():
        mark, color = {True: ("ok", "green"), False: ("WRONG", "red"), None: ("-", "yellow")}[
            result.ok
        ]
        click.secho(f"{mark:6}{result.name}: {result.message}", fg=color)
        if not result.ok and result.fix:
            click.echo(f"      {result.fix}")
        failures += result.ok is False
    if failures:
        raise ValueError(f"{failures} checks failed: run the commands above")
