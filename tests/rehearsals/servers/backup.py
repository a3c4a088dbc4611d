"""Backup and restore of MLflow by the commands of docs/mlflow.md, with PostgreSQL:
``make test-real``."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mlflow
import pytest

from bifocal.search.trained_model import TrainedModel
from runtime.mlflow import alias_lock, get_version_number, make_champion, roll_back
from runtime.mlflow.releases import download_release, read_digest
from tests.mlflow_server import free_port, start_server, stop_server, wait_for_server
from tests.pipelines.releases import add_release, register, write_released_run
from tests.rehearsals.servers.debian import POSTGRES, postgresql

PAGE = Path(__file__).parents[3] / "docs" / "mlflow.md"
ALIASES = {"champion": "champion", "previous": "previous"}
pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(0),
    pytest.mark.skipif(
        POSTGRES is None, reason="PostgreSQL is not installed: Debian's package postgresql-15"
    ),
]


def commands(heading: str) -> str:
    """Return the commands of a section of the page."""
    section = PAGE.read_text().split(f"### {heading}\n")[1]
    block = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block[1]


@contextmanager
def tracking(folder: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run MLflow's server on the database, with its artifacts below the folder."""
    port = free_port()
    process = start_server(folder, port, address)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    mlflow.set_tracking_uri(f"http://127.0.0.1:{port}")
    try:
        wait_for_server(port)
        yield
    finally:
        stop_server(process)


def promote(run: Path) -> None:
    """Register a version with its release, and make it the champion."""
    number = register(run)
    add_release(run)
    with alias_lock("bifocal", 0):
        make_champion(
            get_version_number("bifocal", number), **ALIASES, answer="yes", file="promotion/a.json"
        )


def contents() -> dict[str, Any]:
    """Return aliases, tags and runs of the registry."""
    client = mlflow.MlflowClient()
    versions = client.search_model_versions("name = 'bifocal'")
    return {
        "aliases": client.get_registered_model("bifocal").aliases,
        "versions": sorted(
            (int(entry.version), sorted(entry.tags.items()), entry.run_id) for entry in versions
        ),
        "runs": sorted(
            run.info.run_id
            for run in client.search_runs(
                [entry.experiment_id for entry in client.search_experiments()]
            )
        ),
    }


def test_a_restored_server_has_every_version_release_and_alias(
    demo: TrainedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files, backup = tmp_path / "files", tmp_path / "backup"
    backup.mkdir()
    runs = zip("abc", (1, -1, 1), strict=True)
    first, second, third = (
        write_released_run(demo, tmp_path / name, "", sign) for name, sign in runs
    )
    path = f"{POSTGRES}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    with postgresql() as address:
        environment = os.environ | {
            "DATABASE": address,
            "FILES": str(files),
            "BACKUP": str(backup),
            "PATH": path,
        }

        def execute(heading: str) -> None:
            subprocess.run(
                ["bash", "-euc", commands(heading)], env=environment, cwd=tmp_path, check=True
            )

        with tracking(tmp_path, address, monkeypatch):
            promote(first)
            promote(second)
            kept = contents()
            execute("Backup")
            promote(third)  # after the backup: it is lost
            assert contents() != kept
        shutil.rmtree(files)
        drop = [
            POSTGRES / "psql",
            address,
            "--quiet",
            "--command",
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public",
        ]
        subprocess.run(drop, check=True, stderr=subprocess.DEVNULL)
        execute("Restore")
        with tracking(tmp_path, address, monkeypatch):
            assert contents() == kept
            for number, run in ((1, first), (2, second)):
                version = get_version_number("bifocal", number)
                _, release = download_release(
                    version, read_digest(version), tmp_path / f"release-{number}", features=True
                )
                for file in sorted((run / "artifacts/collection").rglob("*")):
                    if file.is_file() and file.name != "manifest.json":
                        copy = (
                            release / "collection" / file.relative_to(run / "artifacts/collection")
                        )
                        assert copy.read_bytes() == file.read_bytes(), file
            # The registry goes on: a promotion of the next version, and a rollback.
            promote(third)
            assert contents()["aliases"] == {"champion": "3", "previous": "2"}
            with alias_lock("bifocal", 0):
                roll_back("bifocal", **ALIASES, reason="a rehearsal")
            assert contents()["aliases"] == {"champion": "2"}
