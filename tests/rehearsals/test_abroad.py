"""The rehearsal of other settings finds what differs."""

from pathlib import Path

import pytest

from tests.rehearsals import abroad


def test_failures_and_other_outcomes_than_in_the_plain_setting_are_named() -> None:
    plain = {"a": "passed", "b": "failed", "c": "skipped", "d": "passed"}
    found = {"a": "passed", "b": "failed", "c": "passed"}
    assert abroad.differences(plain, found) == ["b: failed", "c: passed", "d: not run"]
    assert abroad.differences(plain, plain) == ["b: failed"]


@pytest.mark.parametrize("name", ["umask", "path", "turkish"])
def test_tests_run_in_a_setting(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abroad, "LOGS", tmp_path)
    (setting,) = [setting for setting in abroad.SETTINGS if setting.name == name]
    found = abroad.outcomes(setting, ["tests/bifocal/durable/test_cached.py"], workers=0)
    assert set(found.values()) == {"passed"}
    assert "100%" in Path(tmp_path, f"{name}.log").read_text()


def test_a_setting_without_tests_is_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(abroad, "LOGS", tmp_path)
    with pytest.raises(OSError, match="file or directory not found: absent"):
        abroad.outcomes(abroad.PLAIN, ["absent"], workers=0)
