"""The log of the service, as JSON and as text for a terminal, and its spans as OpenTelemetry
exports them."""

import logging
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from bifocal.monitoring import read_queries
from bifocal.serving.service.app import create_app
from bifocal.serving.service.observation import (
    ENDPOINTS,
    JSONFormatter,
    TextFormatter,
    add_traces,
    is_news,
)
from bifocal.serving.service.settings import Settings
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.service.clients import SEARCH, client


def request(route: str, status: int, **more: Any) -> logging.LogRecord:
    fields = {"method": "POST", "route": route, "status": status, "ms": 12.3, **more}
    return logging.makeLogRecord(
        {"name": "bifocal.requests", "levelno": 20, "msg": "request", "fields": fields}
    )


def test_a_request_is_one_line_whatever_its_query() -> None:
    line = TextFormatter().format(
        request("/api/v1/search", 200, results=3, text="a\n12:00:00 dog\x1b[2J")
    )
    assert re.fullmatch(
        r"\d\d:\d\d:\d\d POST /api/v1/search 200 12 ms results=3 text=a\\n12:00:00 dog\\x1b\[2J",
        line,
    )


def test_other_records_have_level_fields_and_traceback_without_credentials() -> None:
    formatter = TextFormatter(lambda text: text.replace("S3cret", "***"))
    try:
        raise OSError("no answer from http://user:S3cret@host")
    except OSError:
        values = {
            "levelno": 40,
            "levelname": "ERROR",
            "msg": "S3cret",
            "fields": {"model": "S3cret"},
        }
        line = formatter.format(logging.makeLogRecord(values | {"exc_info": sys.exc_info()}))
    assert "S3cret" not in line
    assert re.match(r"\S+ error \*\*\* model=\*\*\*\nTraceback", line)


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (request("/api/v1/search", 200), True),
        (request("/api/v1/thumbnail", 200), False),
        (request("/api/v1/thumbnail", 404), True),
        (logging.makeLogRecord({"name": "bifocal", "levelno": 20}), True),
    ],
)
def test_a_terminal_shows_no_answered_thumbnails(record: logging.LogRecord, shown: bool) -> None:
    assert is_news(record) == shown


def test_queries_are_logged_only_if_asked_for(
    source: LoadedSource, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    for asked in (False, True):
        caplog.clear()
        with (
            caplog.at_level("INFO", "bifocal.requests"),
            client(source, log_queries=asked) as opened,
        ):
            opened.post(SEARCH, json={"text": "a secret"})
        fields = [record.fields for record in caplog.records if hasattr(record, "fields")]
        assert ("a secret" in str(fields)) is asked
    log = tmp_path / "service.log"
    log.write_text("\n".join(JSONFormatter().format(record) for record in caplog.records))
    always = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    assert read_queries([log], *always) == ["a secret"], "the monitor reads the log"


def test_the_log_redacts_messages_fields_and_tracebacks() -> None:
    formatter = JSONFormatter(lambda text: text.replace("S3cret", "***"))
    try:
        raise OSError("no answer from http://user:S3cret@host")
    except OSError:
        record = logging.makeLogRecord(
            {"msg": "S3cret", "fields": {"reason": "S3cret"}, "exc_info": sys.exc_info()}
        )
    line = formatter.format(record)
    assert "S3cret" not in line
    assert line.count("***") >= 3


TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("convention", ["", "http"])  # the present and the new names of attributes
def test_each_request_is_a_span_of_the_clients_trace_without_text(
    source: LoadedSource, monkeypatch: pytest.MonkeyPatch, convention: str
) -> None:
    pytest.importorskip(
        "opentelemetry.instrumentation.asgi", reason="the extra traces is not installed"
    )
    from opentelemetry.instrumentation._semconv import (
        _OpenTelemetrySemanticConventionStability as Convention,
    )
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", convention)
    monkeypatch.setattr(Convention, "_initialized", False)
    exporter = InMemorySpanExporter()
    app = create_app(source, Settings())
    assert add_traces(app, SimpleSpanProcessor(exporter))
    with TestClient(app, base_url="http://localhost") as client:
        for probe in ("/healthz", "/readyz", "/metrics"):
            assert client.get(probe).status_code == 200
        assert exporter.get_finished_spans() == ()
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        assert client.post(SEARCH, json={"text": "a red star"}, headers=headers).status_code == 200
        assert (
            client.post(
                "/api/v1/search/image?plus=a%20secret%20star", content=b"no image"
            ).status_code
            >= 400
        )
    found, refused = exporter.get_finished_spans()
    assert found.name == f"POST {SEARCH}"
    assert f"{found.context.trace_id:032x}" == TRACE
    assert found.resource.attributes["service.name"] == "bifocal"
    statuses = [
        span.attributes.get("http.status_code", span.attributes.get("http.response.status_code"))
        for span in (found, refused)
    ]
    assert statuses[0] == 200
    assert statuses[1] >= 400
    texts = found.to_json() + refused.to_json()
    assert "/api/v1/search/image" in texts
    assert "secret" not in texts
    assert "red star" not in texts


def test_without_a_collector_nothing_is_imported_and_with_one_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.asgi", None)
    app = FastAPI()
    assert not add_traces(app)
    assert app.user_middleware == []
    monkeypatch.setenv(ENDPOINTS[1], "http://127.0.0.1:9/v1/traces")
    with pytest.raises(ValueError, match=r"pip install '(bifocal-vse|\.)\[traces\]'"):
        add_traces(app)
