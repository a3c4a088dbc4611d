"""Promotion lock: one process at a time, on any machine, moves the aliases of a model.

MLflow's aliases have no compare-and-set, but a parameter of a run has: its key is a part of a
primary key and its value never changes (mlflow 3.17, ``SqlAlchemyStore.log_param``). So the lock is
a run beside the model's first version, in which every holder logs the next parameter
``holder.000001``, ``holder.000002``: one of several processes succeeds. The registry's own list
shows nothing, and the run keeps who promoted when, with the plans and looks that decide: a tag
proves nothing, because others can write it. A Kubernetes Lease would be out of reach of a laptop,
and the concurrency limit of a schedule does not see other schedules.

A holder has a lease, which it renews. The lock of a killed process is free when its lease has
expired. A process that lost its lease cannot move an alias any more, and releases no lock but its
own.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

import click
import mlflow
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from runtime.mlflow.connection import connect, find_run, mlflow_errors_as_oserror

POLL_SECONDS = 0.2
LEASE_SECONDS = 120.0
CLOCK_SKEW_SECONDS = 60.0
"""Largest difference between the clocks of two machines: an expired lease is respected for so
long."""
LOCK_RUN = "promotionlock_run"
HOLDER, EXPIRES, RELEASED = "holder", "expires", "released"
_held: dict[str, tuple[str, int]] = {}
"""Lock run and number of the locks that this process holds, by model."""


@dataclass(frozen=True)
class Holder:
    """The last holder of a lock."""

    number: int  # position among all holders, from 1
    name: str  # process and machine
    expires: float  # end of the lease, seconds since the epoch
    released: bool  # whether the holder, or a user, released the lock

    @property
    def active(self) -> bool:
        """Whether others have to wait."""
        return not self.released and time.time() < self.expires + CLOCK_SKEW_SECONDS


@contextmanager
def promotion_lock(model: str, timeout: float) -> Iterator[None]:
    """Hold the promotion lock of ``model``, if it has versions; ``OSError`` after ``timeout``
    seconds."""
    with mlflow_errors_as_oserror():
        client = connect()
        run_id = lock_run(client, model)
        if run_id is None:
            yield
            return
        number = _acquire(client, run_id, model, timeout)
        stopped = threading.Event()
        renewal = threading.Thread(
            target=_renew, args=(client, run_id, number, stopped), daemon=True
        )
        renewal.start()
        _held[model] = run_id, number
        try:
            yield
        finally:
            del _held[model]
            stopped.set()
            renewal.join()
            _log_once(client, run_id, f"{RELEASED}.{number:06d}", "holder")


def check_lock(model: str) -> None:
    """Check before a write that this process, if it has taken the promotion lock of ``model``,
    still holds it."""
    if model in _held:
        run_id, number = _held[model]
        last = _last_holder(connect(), run_id)
        if last is None or last.number != number or last.released or time.time() > last.expires:
            raise OSError(f"this process lost the promotion lock of {model}: run the command again")


def remove_lock(model: str) -> str:
    """Remove the lock that a killed promotion left, before its lease expires; return its holder."""
    with mlflow_errors_as_oserror():
        client = connect()
        run_id = lock_run(client, model)
        holder = _last_holder(client, run_id) if run_id else None
        if run_id is None or holder is None or not holder.active:
            raise ValueError(
                f"nobody holds the promotion lock of {model}: no promotion is running or was killed"
            )
        _log_once(client, run_id, f"{RELEASED}.{holder.number:06d}", "user")
    return holder.name


def _acquire(client: mlflow.MlflowClient, run_id: str, model: str, timeout: float) -> int:
    """Wait for the lock and take it; return the number of this holder."""
    deadline, reported = time.monotonic() + timeout, ""
    while True:
        last = _last_holder(client, run_id)
        if last is None or not last.active:
            number = 1 + (last.number if last else 0)
            if _log_once(client, run_id, f"{HOLDER}.{number:06d}", _claim()):
                return number
            continue  # another process was faster: wait for it
        if last.name != reported:
            click.echo(
                f"waiting for the promotion lock, held by {last.name}, at most {timeout:g} s",
                err=True,
            )
            reported = last.name
        if time.monotonic() > deadline:
            raise OSError(
                f"the promotion lock of {model} was not released within {timeout:g} s: "
                f"{last.name} holds it. If that process was killed, the lock is free after "
                f"{LEASE_SECONDS + CLOCK_SKEW_SECONDS:g} s, or at once by 'python -m pipelines "
                "promote --unlock'"
            )
        time.sleep(POLL_SECONDS)


def _claim() -> str:
    name = f"process {os.getpid()} on {socket.gethostname()}"
    # Equal values would count as one and the same parameter.
    return json.dumps({"name": name, "expires": time.time() + LEASE_SECONDS, "token": uuid4().hex})


def _renew(client: mlflow.MlflowClient, run_id: str, number: int, stopped: threading.Event) -> None:
    while not stopped.wait(LEASE_SECONDS / 3):
        with suppress(MlflowException):  # a server that stays down ends the lease
            client.set_tag(run_id, f"{EXPIRES}.{number:06d}", str(time.time() + LEASE_SECONDS))


def log_record(model: str, kind: str, value: str, number: int | None = None) -> None:
    """Log the parameter ``<kind>.<number>``, by default of the next number, in the lock's run, if
    there is one."""
    if run_id := _held[model][0] if model in _held else lock_run(connect(), model):
        number = number or max(read_records(model, kind), default=0) + 1
        connect().log_param(run_id, f"{kind}.{number:06d}", value)


def read_records(model: str, kind: str) -> dict[int, str]:
    """Return the values of ``log_record`` by number, in this order."""
    run_id = _held[model][0] if model in _held else lock_run(connect(), model)
    params = connect().get_run(run_id).data.params if run_id else {}
    return {
        int(key.partition(".")[2]): params[key]
        for key in sorted(params)
        if key.startswith(f"{kind}.")
    }


def _last_holder(client: mlflow.MlflowClient, run_id: str) -> Holder | None:
    data = client.get_run(run_id).data
    claims = {
        int(key.removeprefix(f"{HOLDER}.")): text
        for key, text in data.params.items()
        if key.startswith(HOLDER)
    }
    if not claims:
        return None
    number = max(claims)
    claim = json.loads(claims[number])
    expires = float(data.tags.get(f"{EXPIRES}.{number:06d}", claim["expires"]))
    return Holder(number, claim["name"], expires, f"{RELEASED}.{number:06d}" in data.params)


def lock_run(client: mlflow.MlflowClient, model: str) -> str | None:
    """Return the run of the lock, whose id is a parameter of the first version's run; None without
    a version that has a run. A user may have deleted any of these runs: only after that of version
    1, a tag of the model has the id, if that run is beside one of a version.
    """
    versions = client.search_model_versions(f"name = '{model}'", order_by=["version_number ASC"])
    tagged = None
    for version in versions:
        first = find_run(client, str(version.run_id))
        if first is None or int(version.version) > 1:
            tagged = tagged or _tagged_run(client, model, versions)
        if first is None:
            continue
        logged = [
            value for key, value in sorted(first.data.params.items()) if key.startswith(LOCK_RUN)
        ]
        if logged and _revive(client, logged[-1]):
            return str(logged[-1])
        if first.info.lifecycle_stage != "active":
            continue
        known = tagged if not logged and tagged and _revive(client, tagged) else None
        if not known and (tagged or logged):
            click.echo(
                f"warning: MLflow lost the run with the promotions and deletions of {model}",
                err=True,
            )
        created = (
            known
            or client.create_run(
                first.info.experiment_id, run_name=f"promotions of {model}"
            ).info.run_id
        )
        client.set_terminated(created)
        if _log_once(
            client, first.info.run_id, LOCK_RUN + f".{len(logged)}" * bool(logged), created
        ):
            client.set_registered_model_tag(model, LOCK_RUN, created)
            return str(created)
        if created != known:
            client.delete_run(created)  # another process was faster
        return lock_run(client, model)
    return str(tagged) if tagged and _revive(client, tagged) else None


def _tagged_run(
    client: mlflow.MlflowClient, model: str, versions: Iterable[ModelVersion]
) -> str | None:
    """Return the run that a tag of the model names, if it is in the experiment of a version's run,
    or all of these are lost: others can write the tag, and log plans in experiments of their own.
    """
    run_id = client.get_registered_model(model).tags.get(LOCK_RUN)
    run = find_run(client, str(run_id)) if run_id else None
    found = [find_run(client, str(version.run_id)) for version in versions if run]
    experiments = {other.info.experiment_id for other in found if other}
    is_other = run and experiments and run.info.experiment_id not in experiments
    return None if is_other else run_id


def _revive(client: mlflow.MlflowClient, run_id: str) -> bool:
    """Restore a run that a user deleted; return False if 'mlflow gc' removed it."""
    run = find_run(client, run_id)
    if run and run.info.lifecycle_stage != "active":
        client.restore_run(run_id)
    return run is not None


def _log_once(client: mlflow.MlflowClient, run_id: str, key: str, value: str) -> bool:
    """Log a parameter; return whether no other process had logged it with another value."""
    try:
        client.log_param(run_id, key, value)
    except MlflowException as error:
        if (
            error.error_code != "INVALID_PARAMETER_VALUE"
            or key not in client.get_run(run_id).data.params
        ):
            raise
        return False
    return True
