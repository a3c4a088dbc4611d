"""Queries from a log and from a file, unknown words, and languages."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bifocal.monitoring.queries import (
    KnownWords,
    expected_languages,
    other_languages,
    query_languages,
    read_queries,
    sample,
)
from bifocal.monitoring.significance import Count
from bifocal.text.vocabulary import Vocabulary

SINCE, UNTIL = datetime(2026, 11, 16, tzinfo=UTC), datetime(2026, 11, 23, tzinfo=UTC)


def line(time: str, **fields: Any) -> str:
    entry = {"time": time, "level": "info", "event": "request", "route": "/api/v1/search", "status": 200, **fields}
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
    assert read_queries([tmp_path / "queries.txt"], SINCE, UNTIL) == ["a red star", "a star", "a red star"]


def test_log_without_sentences_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "service.log"
    log.write_text(line("2026-11-17T10:00:00.000+00:00", results=3))
    with pytest.raises(ValueError, match="--log-queries"):
        read_queries([log], SINCE, UNTIL)


def test_sample_keeps_the_order_and_the_size() -> None:
    drawn = sample([str(number) for number in range(100)], 10, seed=1)
    assert len(drawn) == 10
    assert drawn == sorted(drawn, key=int)
    assert sample(["a", "b"], 10, seed=1) == ["a", "b"]


def test_queries_with_an_unknown_word_are_counted(tmp_path: Path) -> None:
    Vocabulary(["a", "red", "star"]).save(tmp_path / Vocabulary.FILE)
    assert KnownWords(tmp_path).count(["A red star!", "a blue star", "a red red"]) == Count(1, 3)


def test_model_of_subwords_knows_every_word(tmp_path: Path) -> None:
    assert KnownWords(tmp_path).count(["zebra"]) is None


def test_languages_of_a_week_are_compared_with_those_of_the_reference() -> None:
    english = ["there are two children who are playing in the garden"] * 19
    shares = query_languages([*english, "ein kleiner Hund springt über die grüne Wiese"], seed=0)
    assert shares == {"en": 0.95, "de": 0.05}
    assert other_languages(shares, 20, expected_languages({"en": 1.0})) == Count(1, 20)
    assert other_languages(shares, 20, expected_languages(shares)) == Count(0, 20)
    assert other_languages({}, 0, ["en"]) is None
