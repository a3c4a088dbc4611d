"""Values as JSON: what browsers read, and hashes that do not depend on the order of keys."""

import json
import math
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bifocal.durable import json_digest, json_text, plain, write_json
from bifocal.search.calibration.calibration import Calibration

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_every_value_is_json_that_browsers_read(value: Any, safe: bool) -> None:
    def check(given: Any, read: Any) -> None:
        if isinstance(given, dict):
            assert given.keys() == read.keys()
            for key, entry in given.items():
                check(entry, read[key])
        elif isinstance(given, list):
            for entry, found in zip(given, read, strict=True):
                check(entry, found)
        elif isinstance(given, float) and not math.isfinite(given):
            assert read is None
        elif isinstance(given, datetime):
            assert read == str(given)
        elif type(given) is int and safe and float(given) in (2.0**53, -(2.0**53)):
            assert str(read) == str(given)
        elif type(given) is int and safe and abs(given) > 2**53:
            assert read == str(given)
        else:
            assert (type(read), read) == (type(given), given)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    text = json_text(value, safe=safe)
    check(value, json.loads(text, parse_constant=refuse))
    assert json.loads(json_text(value, safe=safe, ensure_ascii=True)) == json.loads(text)


def test_numbers_of_numpy_and_dataclasses_are_json() -> None:
    measured = Calibration(np.float32(0.5), math.nan, np.int64(2**60), 0, 0, 0, 1, 9)
    found = plain({"a": (measured, Path("b"))}, safe=True)["a"]
    assert list(found[0].values())[:3] == [0.5, None, str(2**60)]
    assert found[1] == "b"


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_a_hash_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    expected = sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
    assert json_digest(dict(reversed(value.items()))) == expected


def test_a_file_of_json_is_text_in_ascii(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"b": math.inf, "a": "ä"})
    assert (tmp_path / "a.json").read_text("ascii") == '{\n  "a": "\\u00e4",\n  "b": null\n}\n'
