"""The log of the service, as JSON and as text for a terminal."""

import logging
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bifocal.monitoring import read_queries
from bifocal.serving.service.observation import JSONFormatter, TextFormatter, is_news
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.service.clients import SEARCH, client


def request(route: str, status: int, **more: Any) -> logging.LogRecord:
    fields = {"method": "POST", "route": route, "status": status, "ms": 12.3, **more}
    return logging.makeLogRecord({"name": "bifocal.requests", "levelno": 20, "msg": "request", "fields": fields})


def test_a_request_is_one_line_whatever_its_query() -> None:
    line = TextFormatter().format(request("/api/v1/search", 200, results=3, text="a\n12:00:00 dog\x1b[2J"))
    assert re.fullmatch(r"\d\d:\d\d:\d\d POST /api/v1/search 200 12 ms results=3 text=a\?12:00:00 dog\?\[2J", line)


def test_other_records_have_level_fields_and_traceback_without_credentials() -> None:
    formatter = TextFormatter(lambda text: text.replace("S3cret", "***"))
    try:
        raise OSError("no answer from http://user:S3cret@host")
    except OSError:
        values = {"levelno": 40, "levelname": "ERROR", "msg": "S3cret", "fields": {"model": "S3cret"}}
        line = formatter.format(logging.makeLogRecord(values | {"exc_info": sys.exc_info()}))
    assert "S3cret" not in line
    assert re.match(r"\S+ error \*\*\* model=\*\*\*\nTraceback", line)


@pytest.mark.parametrize(
    ("record", "shown"),
    [
        (request("/api/v1/search", 200), True),
        (request("/api/v1/thumbnail", 200), False),
        (request("/api/v1/thumbnail", 404), True),
        (logging.makeLogRecord({"name": "uvicorn.error", "levelno": 20}), False),
        (logging.makeLogRecord({"name": "uvicorn.error", "levelno": 30}), True),
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
        with caplog.at_level("INFO", "bifocal.requests"), client(source, log_queries=asked) as opened:
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
        record = logging.makeLogRecord({"msg": "S3cret", "fields": {"reason": "S3cret"}, "exc_info": sys.exc_info()})
    line = formatter.format(record)
    assert "S3cret" not in line
    assert line.count("***") >= 3
