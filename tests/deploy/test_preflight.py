"""``deploy/preflight.sh`` with a stub of kubectl."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def preflight(folder: Path, kubectl: str) -> subprocess.CompletedProcess[str]:
    stub = folder / "kubectl"
    stub.write_text(f'#!/bin/sh\necho "$*" >> {folder}/calls\n{kubectl}\n')
    stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    command = [str(ROOT / "deploy" / "preflight.sh"), "team-a", "default-editor"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_preflight_passes_on_a_complete_namespace(tmp_path: Path) -> None:
    done = preflight(tmp_path, "echo true")
    assert done.returncode == 0, done.stdout
    calls = (tmp_path / "calls").read_text()
    account = "--as system:serviceaccount:team-a:default-editor --namespace team-a"
    assert f"auth can-i --quiet create trainjobs.trainer.kubeflow.org {account}" in calls


def test_preflight_names_what_is_missing_and_what_to_do(tmp_path: Path) -> None:
    done = preflight(
        tmp_path, 'case "$*" in *trainjobs*|*bifocal-notice*) exit 1;; esac; echo true'
    )
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert len(failed) == 5  # four verbs and a secret
    assert (
        failed[-1]
        == "FAILED  secret bifocal-notice: write secrets/bifocal-notice.env of your overlay"
    )


def test_preflight_without_trainer_does_not_blame_the_permissions(tmp_path: Path) -> None:
    # Kubernetes 1.34 answers "no" for a resource type that it does not have.
    done = preflight(tmp_path, 'case "$*" in *train*) exit 1;; esac; echo true')
    failed = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert failed == [
        "FAILED  runtime torch-distributed: install Kubeflow Trainer with its runtimes, or "
        "train on one machine"
    ]


def test_preflight_finds_the_policy_that_repeats_no_failed_container(tmp_path: Path) -> None:
    """Kubeflow Pipelines 2.17 installs it: ``tests/cluster/recorded/train_failing.json`` has one
    attempt of two."""
    done = preflight(
        tmp_path,
        'case "$*" in *workflow-controller*) echo "retryPolicy: OnError";; *) echo true;; esac',
    )
    (failed,) = (line for line in done.stdout.splitlines() if not line.startswith("ok "))
    assert failed.startswith(
        "FAILED  retries of failed steps: Kubeflow's default policy is OnError: apply "
        "deploy/retries.yaml"
    )
