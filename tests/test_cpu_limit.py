"""Tests without the mark ``slow`` have a limit of CPU seconds."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.mark.parametrize(
    ("seconds", "is_slow", "pace", "is_refused"),
    [(3.9, False, 1, False), (4.1, False, 1, True), (99, True, 1, False), (7.9, False, 2, False)],
)
def test_a_test_above_the_limit_fails_on_a_machine_of_any_pace(
    seconds: float,
    is_slow: bool,
    pace: int,
    is_refused: bool,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooks = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).with_name("conftest.py")))
    times = iter([10.0, 10.0 + seconds])
    monkeypatch.setattr(hooks, "cpu_seconds", lambda: next(times, 0.0))
    monkeypatch.setattr(hooks, "unit_of_work", lambda: pace * hooks.UNIT_SECONDS)
    unchanged = SimpleNamespace(get_profile=lambda name: SimpleNamespace(max_examples=25))
    monkeypatch.setattr(hooks, "settings", unchanged)
    item = SimpleNamespace(nodeid="test", get_closest_marker=lambda name: is_slow)
    call = hooks.pytest_runtest_call(item)
    next(call)
    refused = pytest.raises(pytest.fail.Exception, match=r"4\.1 s of CPU, at most 4\.0 s")
    with refused if is_refused else nullcontext():
        next(call, None)
