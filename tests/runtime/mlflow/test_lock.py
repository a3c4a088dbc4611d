"""Promotion lock: one holder at a time, leases, and holders that were stopped for too long."""

import os
import re
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest

from runtime.mlflow import lock, move_alias, promotion_lock, remove_lock
from tests.runtime.mlflow.kills import lose_run

ROOT = Path(__file__).parents[3]
MODEL = "locked"
ME = rf"process {os.getpid()} on \S+"


@pytest.fixture
def client(mlflow_store: str) -> mlflow.MlflowClient:
    """Client of a registry with one version."""
    return register_version(mlflow.MlflowClient(mlflow_store))


def register_version(client: mlflow.MlflowClient) -> mlflow.MlflowClient:
    if not client.search_registered_models():
        client.create_registered_model(MODEL)
    run = client.create_run("0").info
    client.create_model_version(MODEL, f"{run.artifact_uri}/model", run.run_id)
    return client


def test_second_process_waits_and_then_names_the_holder(
    client: mlflow.MlflowClient, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        promotion_lock(MODEL, timeout=0),
        pytest.raises(
            OSError, match=rf"was not released within 0\.5 s: {ME} holds it\. .*--unlock"
        ),
        promotion_lock(MODEL, timeout=0.5),
    ):
        pass
    # A server of an earlier test may report a closed connection meanwhile.
    assert re.search(
        rf"^waiting for the promotion lock, held by {ME}, at most 0\.5 s$",
        capsys.readouterr().err,
        re.M,
    )
    with promotion_lock(MODEL, timeout=0):
        move_alias(MODEL, "champion", 1)


def test_registry_lists_the_model_alone_while_the_lock_is_held(client: mlflow.MlflowClient) -> None:
    with promotion_lock(MODEL, timeout=0):
        assert [model.name for model in client.search_registered_models()] == [MODEL]


def test_holder_whose_lock_was_removed_moves_no_alias_and_keeps_the_next_lock(
    client: mlflow.MlflowClient,
) -> None:
    with promotion_lock(MODEL, timeout=0):
        assert re.fullmatch(ME, remove_lock(MODEL))
        with pytest.raises(
            ValueError,
            match=r"nobody holds the promotion lock of locked: no promotion is running or",
        ):
            remove_lock(MODEL)
        with pytest.raises(OSError, match="this process lost the promotion lock"):
            move_alias(MODEL, "champion", 1)
        # The next holder, as another process would acquire it.
        run_id = lock.lock_run(client, MODEL)
        assert run_id is not None
        number = lock._acquire(client, run_id, MODEL, timeout=0)
    assert re.fullmatch(ME, remove_lock(MODEL)), (
        "the first holder must not release the lock of the next one"
    )
    assert number == 2


def test_lock_of_a_killed_process_is_free_after_its_lease(
    client: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = lock.lock_run(client, MODEL)
    assert run_id is not None
    assert lock._acquire(client, run_id, MODEL, timeout=0) == 1  # never released
    with pytest.raises(OSError, match="was not released"), promotion_lock(MODEL, timeout=0):
        pass
    monkeypatch.setattr(lock, "CLOCK_SKEW_SECONDS", -lock.LEASE_SECONDS)
    with promotion_lock(MODEL, timeout=0):
        assert lock._held[MODEL] == (run_id, 2)


def test_lease_is_renewed(client: mlflow.MlflowClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "LEASE_SECONDS", 2.0)
    monkeypatch.setattr(lock, "CLOCK_SKEW_SECONDS", 0.0)
    with promotion_lock(MODEL, timeout=0):
        with pytest.raises(OSError, match="was not released"), promotion_lock(MODEL, timeout=2.5):
            pass
        move_alias(MODEL, "champion", 1)


PROCESSES = """
import os, sys
from pathlib import Path
from runtime.mlflow import promotion_lock
from runtime.mlflow import lock
lock.POLL_SECONDS = 0.05
children = []
for number in range(5):
    child = os.fork()
    if child == 0:
        with promotion_lock(sys.argv[1], timeout=60):
            Path("inside").mkdir()  # fails if another process is inside
            Path("inside").rmdir()
        os._exit(0)
    children.append(child)
sys.exit(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
"""


def test_one_of_five_processes_is_inside(mlflow_server: int, tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{mlflow_server}"
    client = register_version(mlflow.MlflowClient(address, address))
    environment = {**os.environ, "MLFLOW_TRACKING_URI": address, "PYTHONPATH": str(ROOT)}
    environment["MLFLOW_ENABLE_ASYNC_LOGGING"] = "true"  # of the user: the lock stays exclusive
    command = [sys.executable, "-c", PROCESSES, MODEL]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (run,) = client.search_runs(["0"], f"attributes.run_name = 'promotions of {MODEL}'")
    assert len([name for name in run.data.params if name.startswith("released")]) == 5


def test_the_lock_outlives_each_run_that_a_user_deletes(
    client: mlflow.MlflowClient, capsys: pytest.CaptureFixture[str]
) -> None:
    held = lock.lock_run(client, MODEL)
    assert held is not None
    client.set_registered_model_tag(MODEL, lock.LOCK_RUN, client.create_run("0").info.run_id)
    assert lock.lock_run(client, MODEL) == held, "the tag of a user must bring no deleted item back"
    client.set_registered_model_tag(MODEL, lock.LOCK_RUN, held)
    client.delete_run(held)
    with promotion_lock(MODEL, timeout=0):
        move_alias(MODEL, "champion", 1)
    lose_run(client.get_model_version(MODEL, "1").run_id)
    assert lock.lock_run(client, MODEL) == held
    register_version(client)
    lose_run(held)
    assert "lost" not in capsys.readouterr().err
    with promotion_lock(MODEL, timeout=0):
        move_alias(MODEL, "champion", 2)
    assert (
        "warning: MLflow lost the run with the promotions and deletions of locked"
        in capsys.readouterr().err
    )
    second = lock.lock_run(client, MODEL)
    assert second is not None
    lose_run(second)
    assert lock.lock_run(client, MODEL) not in (None, held, second)


def test_a_tag_names_no_run_of_another_experiment(client: mlflow.MlflowClient) -> None:
    """With the first version deleted, a plan of a stranger would make another one champion."""
    for _ in range(2):
        register_version(client)
    held = lock.lock_run(client, MODEL)
    stranger = client.create_run(client.create_experiment("of a stranger")).info.run_id
    client.log_param(stranger, "plan.000001", '{"moves": {"champion": [2, 3]}}')
    client.delete_model_version(MODEL, "1")
    client.set_registered_model_tag(MODEL, lock.LOCK_RUN, stranger)
    assert lock.lock_run(client, MODEL) not in (None, stranger)
    assert lock.read_records(MODEL, "plan") == {}
    assert held is not None
