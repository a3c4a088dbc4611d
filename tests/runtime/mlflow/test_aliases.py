"""Promotions and rollbacks that are killed at any write to the registry, and tags and records that
a user wrote."""

import json
from collections.abc import Callable
from contextlib import suppress

import mlflow
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.mlflow import (
    VETO,
    alias_lock,
    get_version,
    get_version_number,
    make_champion,
    roll_back,
    version_tags,
    withdraw,
)
from runtime.mlflow.aliases import PLAN_TAG, Plan, deciding_tags, unlock
from runtime.mlflow.lock import lock_run, log_record
from tests.runtime.mlflow.kills import Killed, limit_writes, lose_run

MODEL = "moved"
STEPS = 16
ALIASES = {"champion": "champion", "previous": "previous"}
WRITES = (
    "set_registered_model_alias",
    "delete_registered_model_alias",
    "set_model_version_tag",
    "delete_model_version_tag",
    "set_registered_model_tag",
    "delete_registered_model_tag",
    "log_dict",
    "log_param",
)
State = tuple[int | None, int | None, frozenset[int]]


@pytest.fixture
def kill_at(mlflow_store: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return a function that lets so many more writes succeed, and register three versions."""
    mlflow.set_tracking_uri(mlflow_store)
    mlflow.set_experiment("moves")
    client = mlflow.MlflowClient()
    client.create_registered_model(MODEL)
    for _ in range(3):
        with mlflow.start_run() as run:
            client.create_model_version(MODEL, "file:///none", run.info.run_id)
    return limit_writes(monkeypatch, WRITES)


def promote(number: int) -> None:
    with alias_lock(MODEL, 0):
        champion = get_version(MODEL, "champion")
        if champion is None or champion.number != number:
            make_champion(
                get_version_number(MODEL, number),
                **ALIASES,
                answer="yes",
                file="promotion/against.json",
            )


def undo() -> None:
    with alias_lock(MODEL, 0):
        roll_back(MODEL, **ALIASES, reason="wrong answers")


def state() -> State:
    numbers = (
        version.number if (version := get_version(MODEL, alias)) else None for alias in ALIASES
    )
    vetoed = frozenset(
        number for number in (1, 2, 3) if VETO in version_tags(get_version_number(MODEL, number))
    )
    return (*numbers, vetoed)  # type: ignore[return-value]


def expected(before: State, command: int) -> State:
    """Return the state after a promotion of the version ``command``, or after a rollback for 0."""
    champion, previous, vetoed = before
    if command == 0:
        return (
            before
            if champion is None or previous is None
            else (previous, None, vetoed | {champion})
        )
    return before if command == champion else (command, champion or previous, vetoed - {command})


def run(command: int) -> None:
    if command:
        promote(command)
    else:
        with suppress(ValueError):  # no promotion to roll back
            undo()


@pytest.mark.slow
def test_killed_promotions_and_rollbacks_are_finished_or_left_out(
    kill_at: Callable[[int], None],
) -> None:
    """The review of commit 097c66e: a rollback after a killed promotion vetoed the live
    champion."""
    random, before, outcomes = np.random.default_rng(1), state(), set[str]()
    for _ in range(STEPS):
        command = int(random.integers(4))
        after, killed = expected(before, command), False
        kill_at(int(random.integers(12)))
        try:
            run(command)
        except Killed:
            killed = True
        kill_at(10**6)
        with alias_lock(MODEL, 0):
            now = state()
            assert now in ((before, after) if killed else (after,))
            assert now[0] not in now[2], "the champion has a veto"
        if killed:
            outcomes.add("finished" if now == after else "left out")
        before = now
    assert outcomes == {"finished", "left out"}


def test_a_plan_is_dropped_if_a_user_moved_an_alias_since(kill_at: Callable[[int], None]) -> None:
    promote(1)
    kill_at(1)
    with pytest.raises(Killed):
        promote(2)
    kill_at(10**6)
    mlflow.MlflowClient().set_registered_model_alias(MODEL, "champion", "3")
    promote(2)
    assert state() == (2, 3, frozenset())


def test_a_champion_that_is_the_previous_version_is_not_rolled_back(
    kill_at: Callable[[int], None],
) -> None:
    for alias in ALIASES:
        mlflow.MlflowClient().set_registered_model_alias(MODEL, alias, "2")
    with pytest.raises(
        ValueError, match="the champion, version 2, of moved has the alias 'previous': there is no"
    ):
        undo()
    assert state() == (2, 2, frozenset())


FOREIGN = {
    "moves": {"champion": [1, 3]},
    "version": 3,
    "tags": {"promotion": "yes", VETO: None},
    "file": "p/x.json",
}
DAMAGED = (
    "not json",
    "[]",
    "{}",
    json.dumps({**FOREIGN, "moves": {"champion": [1, 9]}, "version": 9}),
)


@pytest.mark.parametrize(
    "plan", [json.dumps(FOREIGN), json.dumps({**FOREIGN, "entries": {}}), *DAMAGED[:2]]
)
def test_a_plan_in_a_tag_is_refused_named_and_removable(
    kill_at: Callable[[int], None], capsys: pytest.CaptureFixture[str], plan: str
) -> None:
    client = mlflow.MlflowClient()
    for alias, number in (("champion", "1"), ("previous", "2")):
        client.set_registered_model_alias(MODEL, alias, number)
    with alias_lock(MODEL, 0):
        withdraw(get_version_number(MODEL, 3), "worse")
    client.set_registered_model_tag(MODEL, PLAN_TAG, plan)
    undo()
    assert state() == (2, None, frozenset({1, 3}))
    error = capsys.readouterr().err
    assert (
        f"the tag {PLAN_TAG} of moved is refused: a plan is a parameter of the run 'promotions "
        "of moved'" in error
    )
    assert "'python -m pipelines promote --unlock' deletes the tag" in error
    assert unlock(MODEL) == f"the tag {PLAN_TAG}"
    with pytest.raises(ValueError, match="nobody holds the promotion lock of moved"):
        unlock(MODEL)


def test_damaged_plans_and_plans_of_deleted_versions_are_dropped(
    kill_at: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    promote(1)
    kill_at(1)
    with pytest.raises(Killed):
        promote(3)
    kill_at(10**6)
    for plan in DAMAGED:
        log_record(MODEL, "plan", plan)
    mlflow.MlflowClient().delete_model_version(MODEL, "3")
    promote(2)
    assert (
        capsys.readouterr().err.count("or versions were deleted: nothing is done")
        == len(DAMAGED) + 1
    )
    assert [
        version.number if (version := get_version(MODEL, alias)) else None for alias in ALIASES
    ] == [2, 1]


@given(st.text() | st.recursive(st.none() | st.integers(), st.lists).map(json.dumps))
def test_any_other_record_is_a_plan_without_a_version(record: str) -> None:
    assert Plan.read(record) == Plan({}, 0, {}, "")


def test_a_veto_outlives_its_tag_and_its_record(kill_at: Callable[[int], None]) -> None:
    promote(1)
    promote(2)
    undo()
    client, version = mlflow.MlflowClient(), get_version_number(MODEL, 2)
    client.delete_model_version_tag(MODEL, "2", VETO)
    assert deciding_tags(version)[VETO] == "rolled back to version 1: wrong answers"
    client.set_model_version_tag(MODEL, "3", VETO, "withdrawn by hand")
    lose_run(str(lock_run(client, MODEL)))
    assert deciding_tags(get_version_number(MODEL, 3))[VETO] == "withdrawn by hand"
    promote(3)
    assert VETO not in deciding_tags(get_version_number(MODEL, 3))
