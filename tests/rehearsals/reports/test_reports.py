"""A short form of 'make reports': a photograph and a caption table; and a case with a wrong
value."""

from dataclasses import replace
from pathlib import Path

from tests.rehearsals.reports.__main__ import judge
from tests.rehearsals.reports.world import CASES


def test_two_cases_have_their_values_and_a_wrong_value_is_seen(tmp_path: Path) -> None:
    cases = {case.see.__name__: case for case in CASES}
    chosen = [cases["fraction"], cases["no_row"]]
    rows, failed = judge([*chosen, replace(chosen[0], expected=[(1, 1)])], tmp_path)
    assert [row.split()[1] for row in rows] == ["ok", "ok", "MISS"]
    assert [case.expected for case in failed] == [[(1, 1)]]


def test_every_case_names_a_source_and_has_a_name_of_its_own() -> None:
    assert len({(case.kind, case.title) for case in CASES}) == len(CASES)
    assert all(case.source for case in CASES)
