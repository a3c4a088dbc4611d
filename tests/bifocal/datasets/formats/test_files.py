"""Streamed lists of JSON objects against the parser of whole files."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bifocal.datasets.formats import files
from bifocal.datasets.formats.files import stream_json_list

OBJECTS = st.lists(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=9) | st.none(), max_size=3))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries=OBJECTS, indent=st.sampled_from([None, 2]), chunk=st.integers(1, 20))
def test_streamed_entries_are_those_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, object]], indent: int | None, chunk: int
) -> None:
    path = tmp_path / "entries.json"
    path.write_text(f"\n {json.dumps(entries, indent=indent)}\n")
    monkeypatch.setattr(files, "CHUNK", chunk)
    assert list(stream_json_list(path, "VisualGenome")) == json.loads(path.read_text())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}', "expected a list of objects"),
        ("[1, 2]", "expected a list of objects"),
        ('[{"a": 1} {"b": 2}]', "expected a list of objects"),
        ('[{"a": 1}, {"b"', "is not JSON"),
        ("", "expected a list of objects"),
    ],
)
def test_other_files_are_rejected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "entries.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        list(stream_json_list(path, "VisualGenome"))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"VisualGenome needs .*none\.json: no such file"):
        next(stream_json_list(tmp_path / "none.json", "VisualGenome"))
