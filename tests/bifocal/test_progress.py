"""Progress goes to stderr: a bar on a terminal, lines elsewhere."""

import os
import unicodedata
from collections.abc import Iterator
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bifocal import progress
from bifocal.progress import log_line, plain, printable, track


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let four seconds pass between two looks at the clock."""
    ticks: Iterator[float] = iter(range(0, 1000, 4))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(ticks))


def test_track_yields_items_and_prints_a_line_every_ten_seconds(
    clock: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(track(range(7), "count", done=3, status=lambda: "loss 0.5")) == list(range(7))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "count: 6 of 10, 0.2/s, 16 s left; loss 0.5",
        "count: 9 of 10, 0.2/s, 4 s left; loss 0.5",
    ]


def test_track_of_unknown_length_prints_no_remaining_time(
    clock: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(track(iter("abc"), "read")) == ["a", "b", "c"]
    assert capsys.readouterr().err == "read: 3, 0.2/s\n"


def test_track_draws_a_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert list(track([1, 2], "count", status=lambda: "done")) == [1, 2]
    assert "2/2" in capsys.readouterr().err


def test_log_line_prints_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    log_line("saved")
    assert capsys.readouterr() == ("", "saved\n")


@given(text=st.text(st.characters()))
def test_a_printable_text_has_no_control_characters(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() or not any(
        unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in shown
    )
    assert printable(shown) == shown
    assert shown == text or len(shown) > len(text)


def test_a_name_is_shown_on_one_line_and_without_terminal_codes() -> None:
    name = os.fsdecode(b"a\x1b[31mRED\x1b]0;owned\x07\n\xe9.jpg")
    assert printable(name) == r"a\x1b[31mRED\x1b]0;owned\x07\n\xe9.jpg"
    assert printable("日本 é 👩‍👧.jpg") == "日本 é 👩‍👧.jpg"


@given(
    text=st.text(st.sampled_from("a[]/\\\x1b\nb"), max_size=12),
    length=st.integers(0, 12),
)
def test_a_text_of_somebody_else_has_no_markup_for_rich(text: str, length: int) -> None:
    console = Console(file=StringIO(), width=80, force_terminal=True, color_system=None)
    console.print(plain(text, length))
    assert console.file.getvalue().rstrip() == printable(text)[:length].rstrip()  # type: ignore[attr-defined]
