"""Schedules through the real kfp.Client, against a stub of the server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kfp import Client

from pipelines.kubeflow.client import PREFIX, Target
from pipelines.kubeflow.resources import load as load_resources
from pipelines.kubeflow.schedule import (
    Schedule,
    apply,
    list_schedules,
    load,
    plan,
    prefix_of,
)
from tests.pipelines.compiled import REVISION, compile_text
from tests.pipelines.kubeflow_stub import Kubeflow, serve

WEEKLY = Schedule(cron="0 0 3 * * 1", recipes=[], enabled=True, max_concurrency=1, catch_up=False)


@pytest.fixture
def server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[tuple[Client, type[Kubeflow]]]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KFP_NAMESPACE", raising=False)
    with serve() as (address, stub):
        yield Client(host=address), stub


def plan_and_apply(
    schedules: dict[str, Schedule], client: Client, comment: str = "", **resources: str
) -> list[tuple[str, str]]:
    target = Target(client, load_resources().model_copy(update=resources), REVISION)
    changes = plan(schedules, target, lambda entry: compile_text() + comment)
    apply(schedules, changes, target)
    return [(change.action, change.name) for change in changes]


def test_apply_sends_the_declared_schedule(server: tuple[Client, type[Kubeflow]]) -> None:
    client, stub = server
    assert plan_and_apply({"weekly": WEEKLY}, client) == [("create", "weekly")]
    (sent,) = stub.schedules.values()
    assert sent["display_name"] == PREFIX + "weekly"
    assert sent["trigger"]["cron_schedule"]["cron"] == WEEKLY.cron
    assert int(sent["max_concurrency"]) == WEEKLY.max_concurrency
    assert sent["no_catchup"] is True
    assert sent["mode"] == "ENABLE"
    assert sent["experiment_id"] in stub.experiments
    assert REVISION in sent["description"]
    version = stub.versions[sent["pipeline_version_reference"]["pipeline_version_id"]]
    assert version["pipeline_spec"] == compile_text()
    assert version["display_name"].startswith(REVISION[:12])
    assert version["description"] == f"commit {REVISION}"
    assert list_schedules(client, PREFIX) == [f"{PREFIX}weekly  {WEEKLY.cron}  enabled"]


def test_a_second_apply_sends_nothing(server: tuple[Client, type[Kubeflow]]) -> None:
    client, stub = server
    schedules = {name: WEEKLY for name in ("a", "b", "c")}
    plan_and_apply(schedules, client)
    stub.calls.clear()
    assert {action for action, _ in plan_and_apply(schedules, client)} == {"keep"}
    assert stub.calls == []


def test_replace_creates_the_new_schedule_before_it_deletes_the_old(
    server: tuple[Client, type[Kubeflow]],
) -> None:
    client, stub = server
    plan_and_apply({"weekly": WEEKLY}, client)
    stub.calls.clear()
    daily = WEEKLY.model_copy(update={"cron": "0 0 3 * * *"})
    assert plan_and_apply({"weekly": daily}, client) == [("replace", "weekly")]
    assert [method for method, path in stub.calls if "recurringruns" in path] == ["POST", "DELETE"]
    assert [run["trigger"]["cron_schedule"]["cron"] for run in stub.schedules.values()] == [
        daily.cron
    ]
    assert plan_and_apply({"weekly": daily}, client, "# other\n") == [("replace", "weekly")]
    assert len(stub.schedules) == 1


def test_the_service_account_and_the_folder_of_artifacts_are_part_of_a_schedule(
    server: tuple[Client, type[Kubeflow]],
) -> None:
    client, stub = server
    plan_and_apply({"weekly": WEEKLY}, client)
    settings = {"service_account": "trainer", "pipeline_root": "s3://bucket/runs"}
    assert plan_and_apply({"weekly": WEEKLY}, client, **settings) == [("replace", "weekly")]
    (sent,) = stub.schedules.values()
    assert sent["service_account"] == "trainer"
    assert sent["runtime_config"]["pipeline_root"] == "s3://bucket/runs"


def test_apply_deletes_undeclared_schedules_of_this_project_only(
    server: tuple[Client, type[Kubeflow]],
) -> None:
    client, stub = server
    stub.schedules["foreign"] = {
        "recurring_run_id": "foreign",
        "display_name": "another project",
        "status": "ENABLED",
    }
    plan_and_apply({"weekly": WEEKLY, "monthly": WEEKLY}, client)
    assert plan_and_apply({"weekly": WEEKLY}, client) == [("keep", "weekly"), ("delete", "monthly")]
    assert sorted(run["display_name"] for run in stub.schedules.values()) == [
        "another project",
        PREFIX + "weekly",
    ]


def test_duplicate_and_manually_disabled_schedules_are_replaced(
    server: tuple[Client, type[Kubeflow]],
) -> None:
    client, stub = server
    plan_and_apply({"weekly": WEEKLY}, client)
    (run,) = stub.schedules.values()
    stub.schedules["twin"] = {**run, "recurring_run_id": "twin"}
    assert plan_and_apply({"weekly": WEEKLY}, client) == [("replace", "weekly")]
    assert len(stub.schedules) == 1
    next(iter(stub.schedules.values()))["status"] = "DISABLED"
    assert plan_and_apply({"weekly": WEEKLY}, client) == [("replace", "weekly")]
    assert [run["status"] for run in stub.schedules.values()] == ["ENABLED"]


def test_a_schedule_whose_run_is_in_progress_is_paused_and_deleted_later(
    server: tuple[Client, type[Kubeflow]],
) -> None:
    """Seen on a real server: deleting a schedule deletes the workflow of its run, which then stays
    RUNNING."""
    client, stub = server
    plan_and_apply({"weekly": WEEKLY}, client)
    (old,) = stub.schedules
    stub.runs["run"] = {"run_id": "run", "recurring_run_id": old, "state": "RUNNING"}
    daily = WEEKLY.model_copy(update={"cron": "0 0 3 * * *"})
    assert plan_and_apply({"weekly": daily}, client) == [("replace", "weekly")]
    assert [run["status"] for run in stub.schedules.values()] == ["DISABLED", "ENABLED"]
    stub.runs["run"]["state"] = "SUCCEEDED"
    assert plan_and_apply({"weekly": daily}, client) == [("replace", "weekly")]
    assert [run["trigger"]["cron_schedule"]["cron"] for run in stub.schedules.values()] == [
        daily.cron
    ]
    assert plan_and_apply({"weekly": daily}, client) == [("keep", "weekly")]


def test_schedules_file_of_the_repository_is_valid() -> None:
    assert load()


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 3 * * 1", "has 5 fields, expected six.*put '0 '"),
        ("0 0 25 * * *", "'25' is not a valid hour"),
        ("0 0 3 * * 7", "'7' is not a valid weekday"),
        ("0 0 3 0 * *", "'0' is not a valid day"),
        ("0 0 3 * foo *", "'foo' is not a valid month"),
        ("0 9-5 3 * * *", "'9-5' is not a valid minute"),
        ("0 */0 3 * * *", "is not a valid minute"),
        ("0 0 3 31 2,4 *", "would never run"),
    ],
)
def test_an_invalid_cron_expression_is_an_error(cron: str, expected: str, tmp_path: Path) -> None:
    entry = {**WEEKLY.model_dump(), "cron": cron}
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump({"weekly": entry}))
    with pytest.raises(ValueError, match=expected):
        load(tmp_path / "schedules.yaml")


@pytest.mark.parametrize(
    ("text", "expected"), [("a: [", "schedules.yaml is not YAML"), ("- a", "whole file: Input")]
)
def test_a_malformed_schedules_file_is_an_error(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "schedules.yaml").write_text(text)
    with pytest.raises(ValueError, match=expected):
        load(tmp_path / "schedules.yaml")


def test_a_parameter_error_names_the_schedule(server: tuple[Client, type[Kubeflow]]) -> None:
    def fail(entry: Schedule) -> str:
        raise ValueError("train_embedding.model.dim: got 'x'")

    with pytest.raises(
        ValueError, match=r"schedule 'weekly': train_embedding\.model\.dim: got 'x'"
    ):
        plan({"weekly": WEEKLY}, Target(server[0], load_resources(), REVISION), fail)
    assert server[1].calls == []


def test_the_shipped_schedules_have_no_conflict() -> None:
    assert {name: entry.enabled for name, entry in load().items()} == dict.fromkeys(load(), True)


@pytest.mark.parametrize(
    ("first", "second", "conflict"),
    [
        (
            ("retrain", "0 0 3 * * 1", 23.0),
            ("refresh", "0 0 1 * * *", 2.0),
            "refresh starts on Tuesday at 1:00:00 within",
        ),
        (("retrain", "0 0 3 * * 1", 22.0), ("refresh", "0 0 1 * * *", 2.0), ""),
        (
            ("retrain", "0 0 3 * * 1", 2.0),
            ("refresh", "0 0 2 * * *", 2.0),
            "retrain starts on Monday at 3:00:00 within",
        ),
        (
            ("train", "0 0 3 1 * *", 1.0),
            ("clean", "0 0 3 * * sat", 1.0),
            "starts on Saturday at 3:00:00 within",
        ),
        (("train", "0 0 3 1 * 1", 1.0), ("clean", "0 30 3 2 1 *", 1.0), ""),
        (("retrain", "0 0 3 * * 1", 9.0), ("monitor", "0 0 4 * * 1", 2.0), ""),
    ],
)
def test_two_schedules_that_change_releases_may_not_meet(
    tmp_path: Path, first: tuple[str, str, float], second: tuple[str, str, float], conflict: str
) -> None:
    entries = {
        flow: WEEKLY.model_copy(update={"flow": flow, "cron": cron, "hours": hours}).model_dump()
        for flow, cron, hours in (first, second)
    }
    file = tmp_path / "schedules.yaml"
    file.write_text(yaml.safe_dump(entries))
    if conflict:
        with pytest.raises(ValueError, match=conflict):
            load(file)
    else:
        assert load(file).keys() == entries.keys()
    entries[second[0]]["enabled"] = False
    file.write_text(yaml.safe_dump(entries))
    assert len(load(file)) == 2


def test_projects_leave_the_schedules_of_others_alone(
    server: tuple[Client, type[Kubeflow]],
) -> None:
    client, stub = server
    prefixes = [prefix_of(project) for project in (None, "a", "a-b")]
    for prefix in prefixes:
        target = Target(client, load_resources(), REVISION, prefix)
        apply({"b-c": WEEKLY}, plan({"b-c": WEEKLY}, target, lambda entry: compile_text()), target)
    names = sorted(run["display_name"] for run in stub.schedules.values())
    assert names == ["a-b.b-c", "a.b-c", "bifocal-b-c"]
    for prefix in prefixes:
        target = Target(client, load_resources(), REVISION, prefix)
        changes = plan({}, target, lambda entry: compile_text())
        assert [(change.action, change.name) for change in changes] == [("delete", "b-c")]
        assert len(list_schedules(client, prefix)) == 1
