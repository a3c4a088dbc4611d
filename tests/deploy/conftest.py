"""Shared by the tests of ``deploy/``: its overlays, rendered by kubectl as a user renders them."""

import shutil
import subprocess
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
Documents = list[dict[str, Any]]


@pytest.fixture(scope="session")
def render(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Documents]:
    """Return the documents of a folder of ``deploy/``; ``secrets/*.env.example`` are the
    secrets."""
    deploy = tmp_path_factory.mktemp("render") / "deploy"
    shutil.copytree(ROOT / "deploy", deploy, ignore=shutil.ignore_patterns("*.env"))
    for example in deploy.glob("overlays/*/secrets/*.example"):
        shutil.copy(example, example.with_suffix(""))
    options = {"managed": ("mlflow", "managed-postgres"), "queued": ("standalone", "kueue")}
    for name, (overlay, component) in options.items():
        text = f"resources: [../{overlay}]\ncomponents: [../../components/{component}]\n"
        (deploy / "overlays" / name).mkdir()
        (deploy / "overlays" / name / "kustomization.yaml").write_text(text)

    @lru_cache
    def documents(folder: str) -> Documents:
        command = ["kubectl", "kustomize", str(deploy / folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [*yaml.safe_load_all(done.stdout)]

    return documents
