"""Parts of a module outside the library."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bifocal.registry import build, check_range

SOURCE = """
class OwnLoss:
    def __init__(self, scale: float = 5.0) -> None:
        self.scale = scale
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module in the present folder, which is not on Python's path."""
    (tmp_path / "own_parts.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    yield "own_parts"
    sys.modules.pop("own_parts", None)


def test_a_class_of_any_module_is_a_part(module: str) -> None:
    loss = build("bifocal.losses", {"name": f"{module}:OwnLoss", "scale": 2.0})
    assert (type(loss).__name__, loss.scale) == ("OwnLoss", 2.0)


@pytest.mark.parametrize(
    ("ref", "message"),
    [
        (
            {"name": "own_parts:OwnLos"},
            "module own_parts has no class 'OwnLos'; did you mean 'OwnLoss'",
        ),
        (
            {"name": "own_part:OwnLoss"},
            "no module 'own_part': it is neither installed nor a file in ",
        ),
        (
            {"name": "own_parts:OwnLoss", "scal": 1.0},
            "own_parts:OwnLoss takes no 'scal'; did you mean 'scale'",
        ),
    ],
)
def test_a_wrong_name_gets_one_sentence(module: str, ref: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build("bifocal.losses", ref)


@pytest.mark.parametrize(
    ("interval", "inside", "outside", "expected"),
    [
        ("[0, 1)", (0, 0.5, None), (-0.1, 1, float("nan")), r"a number in \[0, 1\)"),
        ("(0, 1]", (0.1, 1), (0, 1.1), r"a number in \(0, 1\]"),
        ("[2, inf)", (2, 10**9), (1,), "2 or more"),
        ("(0, inf)", (1e-9, 3), (0, -1, float("inf")), "more than 0"),
    ],
)
def test_an_argument_is_in_its_interval(
    interval: str, inside: tuple[float | None, ...], outside: tuple[float, ...], expected: str
) -> None:
    for value in inside:
        check_range(interval, margin=value)
    for value in outside:
        with pytest.raises(ValueError, match=f"margin is {value}: expected {expected}"):
            check_range(interval, margin=value)
