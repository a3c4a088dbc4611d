"""OpenLineage events of a stage, as a receiver gets them over HTTP and OpenLineage's own classes
read them."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from runtime.artifacts import artifact_hash, read_manifest
from runtime.lineage import SETTINGS, lineage_run
from tests.runtime.s3.toy_training import train

RUN = "11111111-2222-4333-8444-555555555555"


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """Yield the address of a receiver, and the events that it gets."""
    events: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/api/v1/lineage"
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
    ).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", events
    server.shutdown()
    server.server_close()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Undo the variables that OpenLineage's client sets from OPENLINEAGE_URL."""
    for name in ("TYPE", "URL"):
        variable = f"OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__{name}"
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    return monkeypatch


def read(event: dict[str, Any]) -> Any:
    """Return an event as OpenLineage's classes accept it: UUIDs, ISO times, known fields."""
    from openlineage.client.event_v2 import (
        InputDataset,
        Job,
        OutputDataset,
        Run,
        RunEvent,
        RunState,
    )

    fields = {name: value for name, value in event.items() if name != "schemaURL"}
    read = RunEvent(
        **fields
        | {
            "eventType": RunState[event["eventType"]],
            "run": Run(**event["run"]),
            "job": Job(**event["job"]),
            "inputs": [InputDataset(**entry) for entry in event["inputs"]],
            "outputs": [OutputDataset(**entry) for entry in event["outputs"]],
        }
    )
    assert read.schemaURL == event["schemaURL"]
    return read


def test_a_stage_sends_its_start_and_its_outputs(
    settings: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("openlineage.client", reason="the extra lineage is not installed")
    settings.setenv("KFP_RUN_ID", RUN)
    with receiver() as (address, events):
        settings.setenv("OPENLINEAGE_URL", address)
        train(tmp_path)
    start, end = map(read, events)
    assert [event.eventType.name for event in (start, end)] == ["START", "COMPLETE"]
    assert start.run.runId == end.run.runId
    assert (end.job.namespace, end.job.name) == ("bifocal", "train_toy")
    (model,) = end.outputs
    assert (model.name, model.facets["version"]["datasetVersion"]) == (
        "model",
        artifact_hash(tmp_path / "model"),
    )
    assert end.run.facets["parent"]["run"]["runId"] == RUN
    assert read_manifest(tmp_path / "model")["component"] == "train_toy"


def test_a_failure_and_the_data_on_s3_are_named(settings: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openlineage.client", reason="the extra lineage is not installed")
    settings.setenv("OPENLINEAGE_NAMESPACE", "team")
    with receiver() as (address, events):
        settings.setenv("OPENLINEAGE_URL", address)
        inputs = {"dataset": "a" * 64, "s3://bucket/photos": "b" * 64}
        with pytest.raises(KeyboardInterrupt), lineage_run("embed_collection", inputs, {}):
            raise KeyboardInterrupt
        with pytest.raises(ValueError, match="no image"), lineage_run("embed_collection", {}, {}):
            raise ValueError("no image at https://me:hunter22@host/x")
    start, interrupted, _, failed = map(read, events)
    assert [(entry.namespace, entry.name) for entry in start.inputs] == [
        ("team", "dataset"),
        ("s3://bucket", "photos"),
    ]
    assert interrupted.run.facets["errorMessage"]["message"] == "KeyboardInterrupt"
    assert failed.eventType.name == "FAIL"
    assert "no image at" in failed.run.facets["errorMessage"]["message"]
    assert "hunter22" not in json.dumps(events)


def test_a_receiver_that_is_away_does_not_end_a_stage(
    settings: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("openlineage.client", reason="the extra lineage is not installed")
    with receiver(404) as (address, _):
        settings.setenv("OPENLINEAGE_URL", address)
        train(tmp_path)
    assert (
        "warning: the OpenLineage event COMPLETE of train_toy was not sent"
        in capsys.readouterr().err
    )


def test_without_the_setting_nothing_is_imported_and_with_it_the_package_is_named(
    settings: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        settings.delenv(name)
    settings.setitem(sys.modules, "openlineage.client", None)
    with lineage_run("evaluate", {}, {}):
        pass
    settings.setenv("OPENLINEAGE_CONFIG", "lineage.yml")
    with (
        pytest.raises(ValueError, match=r"pip install 'bifocal-vse\[lineage\]'"),
        lineage_run("evaluate", {}, {}),
    ):
        pass
