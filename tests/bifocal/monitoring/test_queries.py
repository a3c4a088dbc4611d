"""Queries from a log and from a file."""

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bifocal.monitoring.queries import read_queries

SINCE, UNTIL = datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)


def line(time: str, **fields: Any) -> str:
    entry = {
        "time": time,
        "level": "info",
        "event": "request",
        "route": "/api/v1/search",
        "status": 200,
        **fields,
    }
    return json.dumps(entry) + "\n"


def test_sentences_of_answered_searches_count_once_a_day(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text(
        "Traceback of something else\n[1]\n"
        + line("2026-11-15T23:59:59.999+00:00", text="before")
        + line("2026-11-16T00:00:00.000+00:00", text="a  red star")
        + line("2026-11-16T10:00:00.000+00:00", text="a red star")
        + line("2026-11-17T10:00:00.000+00:00", text="a red star")
        + line("2026-11-17T10:00:00.000+00:00", text=None, like="image-1")
        + line("2026-11-17T10:00:00.000+00:00", text="refused", status=429)
        + line("2026-11-17T10:00:00.000+00:00", text="a phrase", route="/api/v1/explain")
        + line("2026-11-22T23:59:59.999+00:00", text="the last")
        + line("2026-11-23T00:00:00.000+00:00", text="after")
    )
    assert read_queries([log], SINCE, UNTIL) == ["a red star", "a red star", "the last"]


def test_text_file_has_a_sentence_per_line(tmp_path: Path) -> None:
    (tmp_path / "queries.txt").write_text("a red star\n\n  a star \na red star\n")
    assert read_queries([tmp_path / "queries.txt"], SINCE, UNTIL) == [
        "a red star",
        "a star",
        "a red star",
    ]


def test_log_without_sentences_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text(line("2026-11-17T10:00:00.000+00:00", results=3))
    with pytest.raises(ValueError, match="--log-queries"):
        read_queries([log], SINCE, UNTIL)


ENTRY = line("2026-11-17T10:00:00.000+00:00", text="a red star").rstrip("\n")
STARTED = (
    json.dumps({"time": "2026-11-16T00:00:00.000+00:00", "level": "info", "event": "model in use"})
    + "\n"
)


def docker(text: str) -> str:
    return json.dumps({"log": text, "stream": "stderr", "time": "2026-11-17T10:00:00.1Z"}) + "\n"


@pytest.mark.parametrize(
    "content",
    [
        f"2026-11-17T10:00:00.123456789+00:00 stderr F {ENTRY}\n",  # CRI
        f"2026-11-17T10:00:00.1Z stderr P {ENTRY[:60]}\n2026-11-17T10:00:00.1Z stderr F "
        f"{ENTRY[60:]}\n",  # in parts
        docker(ENTRY + "\n"),
        docker(ENTRY[:60]) + docker(ENTRY[60:] + "\n"),
        json.dumps({"date": 1763373600.5, "log": ENTRY, "kubernetes": {"pod_name": "search-0"}})
        + "\n",  # Fluent Bit
        json.dumps({"date": 1763373600.5, "log": f"2026-11-17T10:00:00Z stderr F {ENTRY}"}) + "\n",
        json.dumps({"message": ENTRY, "kubernetes": {}}) + "\n",  # Vector
        json.dumps({"date": 1763373600.5, "log_processed": json.loads(ENTRY)}) + "\n",
        json.dumps([{"log": ENTRY}, {"log": "another program"}]) + "\n",
        f'kube.search: [1763373600.5, {{"log": {json.dumps(ENTRY)}}}]\n',
        f"[pod/search-0/search] {ENTRY}\n",  # kubectl logs --prefix
        f"{ENTRY[40:]}\n{ENTRY}\n{ENTRY[:40]}",  # rotated while it was written
        json.dumps(
            {key: value for key, value in json.loads(ENTRY).items() if key != "time"}
            | {"date": 1763373600.5}
        ),
    ],
)
@pytest.mark.parametrize("compressed", [False, True])
def test_queries_are_read_as_collectors_of_logs_keep_them(
    tmp_path: Path, content: str, compressed: bool
) -> None:
    """The review of commit 097c66e: 0 of 100 queries, and no error."""
    log, data = tmp_path / "search.log.1", (STARTED + content).encode()
    log.write_bytes(gzip.compress(data) if compressed else data)
    since, until = datetime(2025, 11, 16, tzinfo=UTC), UNTIL
    assert read_queries([log], since, until) == ["a red star"]


def test_a_sentence_of_two_rotated_files_counts_once_a_day(tmp_path: Path) -> None:
    logs = [tmp_path / "search.log.1", tmp_path / "search.log"]
    for log in logs:
        log.write_text(ENTRY + "\n")
    assert read_queries(logs, SINCE, UNTIL) == ["a red star"]


def test_logs_without_any_line_of_the_service_are_an_error_with_their_first_lines(
    tmp_path: Path,
) -> None:
    log, empty = tmp_path / "search.log", tmp_path / "new.log"
    empty.touch()
    log.write_text("one\n\n" + json.dumps({"log": "two"}) + f"\n{ENTRY[:40]}\nfour\n")
    with pytest.raises(
        ValueError,
        match=r"no line of .*search\.log.* The first lines are 'one'; '{\"log\": \"two\"}'; ",
    ):
        read_queries([empty, log], SINCE, UNTIL)
    log.write_text(STARTED)
    assert read_queries([empty, log], SINCE, UNTIL) == []


@pytest.mark.parametrize("start", ['{"a":', "[", 'pod {"a":[', '{"log":[{"log":'])
def test_a_line_that_is_too_deep_for_json_is_not_a_search(tmp_path: Path, start: str) -> None:
    log = tmp_path / "service.log"
    for depth in (300, 10**5):
        log.write_text(start * depth + "\n" + line("2026-11-16T10:00:00.000+00:00", text="a star"))
        assert read_queries([log], SINCE, UNTIL) == ["a star"]
