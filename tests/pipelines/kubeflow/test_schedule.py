"""Schedules through the real kfp.Client against a server that keeps what it is sent."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from kfp import Client

from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.kubeflow.cron import FIELDS, check_cron
from pipelines.kubeflow.schedule import PREFIX, Schedule, apply, changes, listed, read
from runtime import parameters

sys.path.insert(0, str(Path(__file__).parents[1]))
from kubeflow_stub import Kubeflow, serve

ROOT = Path(__file__).parents[3]
TEXT = kubeflow.compile_pipeline(parameters.load(ROOT / "params.yaml"), resources.read(), "a" * 40)
WEEKLY = Schedule(cron="0 0 3 * * 1", recipes=[], enabled=True, concurrent=1, catch_up=False)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Client, type[Kubeflow]]]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with serve() as (address, stub):
        yield Client(host=address), stub


def bring_about(schedules: dict[str, Schedule], client: Client, text: str = TEXT) -> list[tuple[str, str]]:
    found = changes(schedules, client, lambda recipes: text)
    apply(schedules, found, client)
    return [(change.kind, change.name) for change in found]


def test_what_is_sent_is_what_was_declared(server: tuple[Client, type[Kubeflow]]) -> None:
    client, stub = server
    assert bring_about({"weekly": WEEKLY}, client) == [("create", "weekly")]
    (sent,) = stub.runs.values()
    assert sent["display_name"] == PREFIX + "weekly"
    assert sent["trigger"]["cron_schedule"]["cron"] == WEEKLY.cron
    assert sent["max_concurrency"] == str(WEEKLY.concurrent) or sent["max_concurrency"] == WEEKLY.concurrent
    assert sent["no_catchup"] is True
    assert sent["mode"] == "ENABLE"
    assert sent["experiment_id"] == "experiment-1"
    pipeline, platforms = yaml.safe_load_all(TEXT)
    assert sent["pipeline_spec"] == {"pipeline_spec": pipeline, "platform_spec": platforms}
    assert listed(client) == [f"{PREFIX}weekly  {WEEKLY.cron}  enabled"]


def test_applied_twice_nothing_is_sent_the_second_time(server: tuple[Client, type[Kubeflow]]) -> None:
    client, stub = server
    schedules = {name: WEEKLY for name in ("a", "b", "c")}
    bring_about(schedules, client)
    stub.calls.clear()
    assert {kind for kind, _ in bring_about(schedules, client)} == {"keep"}
    assert stub.calls == []


def test_a_change_creates_the_new_before_it_deletes_the_old(server: tuple[Client, type[Kubeflow]]) -> None:
    client, stub = server
    bring_about({"weekly": WEEKLY}, client)
    stub.calls.clear()
    daily = WEEKLY.model_copy(update={"cron": "0 0 3 * * *"})
    assert bring_about({"weekly": daily}, client) == [("replace", "weekly")]
    assert [method for method, path in stub.calls if "recurringruns" in path] == ["POST", "DELETE"]
    assert [run["trigger"]["cron_schedule"]["cron"] for run in stub.runs.values()] == [daily.cron]
    assert bring_about({"weekly": daily}, client, TEXT + "# other\n") == [("replace", "weekly")]
    assert len(stub.runs) == 1


def test_what_is_no_longer_declared_goes_and_what_is_not_ours_stays(server: tuple[Client, type[Kubeflow]]) -> None:
    client, stub = server
    stub.runs["foreign"] = {"recurring_run_id": "foreign", "display_name": "somebody's", "status": "ENABLED"}
    bring_about({"weekly": WEEKLY, "monthly": WEEKLY}, client)
    assert bring_about({"weekly": WEEKLY}, client) == [("keep", "weekly"), ("delete", "monthly")]
    assert sorted(run["display_name"] for run in stub.runs.values()) == [PREFIX + "weekly", "somebody's"]


def test_two_of_one_name_and_one_switched_off_by_hand_are_mended(server: tuple[Client, type[Kubeflow]]) -> None:
    client, stub = server
    bring_about({"weekly": WEEKLY}, client)
    (run,) = stub.runs.values()
    stub.runs["twin"] = {**run, "recurring_run_id": "twin"}
    assert bring_about({"weekly": WEEKLY}, client) == [("replace", "weekly")]
    assert len(stub.runs) == 1
    next(iter(stub.runs.values()))["status"] = "DISABLED"
    assert bring_about({"weekly": WEEKLY}, client) == [("replace", "weekly")]
    assert [run["status"] for run in stub.runs.values()] == ["ENABLED"]


def test_the_declared_schedules_are_good() -> None:
    assert read()


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 3 * * 1", "has 5 fields, expected six.*put '0 '"),
        ("0 0 25 * * *", "'25' is no hour"),
        ("0 0 3 * * 7", "'7' is no weekday"),
        ("0 0 3 0 * *", "'0' is no day"),
        ("0 0 3 * foo *", "'foo' is no month"),
        ("0 9-5 3 * * *", "'9-5' is no minute"),
        ("0 */0 3 * * *", "is no minute"),
        ("0 0 3 31 2,4 *", "would never run"),
    ],
)
def test_a_wrong_cron_is_refused_before_anything_is_sent(cron: str, expected: str, tmp_path: Path) -> None:
    entry = {**WEEKLY.model_dump(), "cron": cron}
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump({"weekly": entry}))
    with pytest.raises(ValueError, match=expected):
        read(tmp_path / "schedules.yaml")


@pytest.mark.parametrize(("text", "expected"), [("a: [", "schedules.yaml is not YAML"), ("- a", "all of it: Input")])
def test_a_file_that_declares_nothing_is_refused(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "schedules.yaml").write_text(text)
    with pytest.raises(ValueError, match=expected):
        read(tmp_path / "schedules.yaml")


def test_a_wrong_parameter_is_said_with_its_schedule(server: tuple[Client, type[Kubeflow]]) -> None:
    def refuse(recipes: list[str]) -> str:
        raise ValueError("train_embedding.dim: got 'x'")

    with pytest.raises(ValueError, match=r"schedule 'weekly': train_embedding\.dim: got 'x'"):
        changes({"weekly": WEEKLY}, server[0], refuse)
    assert server[1].calls == []


@given(st.data())
def test_every_expression_within_the_ranges_is_taken(data: st.DataObject) -> None:
    parts = []
    for name, low, high, words in FIELDS:
        start = data.draw(st.integers(low, 28 if name == "day" else high))
        end = data.draw(st.integers(start, high))
        forms = ["*", "?", str(start), f"{start}-{end}", f"{start},{end}", f"*/{end - start + 1}", f"{start}/2"]
        parts.append(data.draw(st.sampled_from([*forms, *words])))
    expression = " ".join(parts)
    assert check_cron(expression) == expression
