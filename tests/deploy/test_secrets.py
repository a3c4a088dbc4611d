"""Secrets of the overlays: the keys that steps and services read, and no values in the repository."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from pipelines.kubeflow import resources
from tests.deploy.documents import OVERLAYS, Render, containers, find

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("overlay", ["standalone", "multi-user"])
def test_secrets_have_the_keys_that_the_steps_read(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    for name, keys in resources.load().secrets.items():
        assert set(find(documents, "Secret", name)["data"]) == set(keys), name


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_secret_of_a_container_is_in_the_overlay(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    secrets = {entry["metadata"]["name"]: entry["data"] for entry in documents if entry["kind"] == "Secret"}
    for container in containers(documents):
        for variable in container.get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                assert reference["key"] in secrets[reference["name"]] or reference.get("optional")


def test_examples_of_secrets_have_no_values_and_the_secrets_are_ignored() -> None:
    examples = sorted(ROOT.glob("deploy/overlays/*/secrets/*.env.example"))
    assert examples
    for example in examples:
        lines = [line for line in example.read_text().splitlines() if not line.startswith("#")]
        assert all(line.endswith("=") for line in lines), example
        path = example.with_suffix("").relative_to(ROOT)
        ignored = subprocess.run(["git", "check-ignore", "--quiet", str(path)], cwd=ROOT, check=False)
        assert ignored.returncode == 0, path


def test_no_password_is_in_an_address_or_a_command(render: Render) -> None:
    for container in containers(render("overlays/mlflow")):
        assert not re.search(r"//[^/@\s]+:[^/@\s]+@", json.dumps(container))


@pytest.mark.parametrize("overlay", ["search", "kserve"])
def test_the_secret_of_a_replica_may_have_the_key_that_deletes(overlay: str, render: Render) -> None:
    documents = render(f"overlays/{overlay}")
    variables = [entry for container in containers(documents) for entry in container.get("env", [])]
    (reference,) = (entry["valueFrom"]["secretKeyRef"] for entry in variables if entry["name"] == "BIFOCAL_ADMIN_KEY")
    assert reference == {"name": "search", "key": "admin_key", "optional": True}
    # The service refuses an empty key, so the example has no line for it.
    assert "admin_key" not in find(documents, "Secret", "search")["data"]
