"""People's corrections of results: ``corrections.csv`` with time, image, text and verdict."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bifocal.datasets.base import RejectedEntry
from bifocal.durable import append_line

FILE = "corrections.csv"
HEADER = ("time", "image", "text", "verdict")
RIGHT, NOT = "right", "not this"
FOUND = 10
"""Results among which a corrected image must be."""


def add_correction(file: Path, image_id: str, text: str, *, right: bool) -> None:
    """Append a correction, which stays after a crash; a later one about the same image and text
    replaces it.

    Raises:
        ValueError: the text is empty.
    """
    words = " ".join(text.split())
    if not words:
        raise ValueError("a correction needs a text: what the image shows, or what it does not")
    if not file.exists() or not file.stat().st_size:
        append_line(file, ",".join(HEADER))
    line, now = io.StringIO(), datetime.now(UTC).isoformat(timespec="seconds")
    csv.writer(line, lineterminator="").writerow([now, image_id, words, RIGHT if right else NOT])
    append_line(file, line.getvalue())


def read_corrections(file: Path) -> tuple[Mapping[tuple[str, str], bool], list[RejectedEntry]]:
    """Return whether a text fits an image, by both, and the lines that cannot be read."""
    found: dict[tuple[str, str], bool] = {}
    rejected = []
    lines = file.read_text("utf-8", "replace").split("\n") if file.is_file() else []
    for number, values in enumerate(csv.reader(lines), start=1):
        if tuple(values) == HEADER or not values:
            continue
        if len(values) != len(HEADER) or values[3] not in (RIGHT, NOT):
            reason = f"expected {', '.join(HEADER)}, with {RIGHT!r} or {NOT!r} as the verdict"
            rejected.append(RejectedEntry("caption", f"{file.name}, line {number}", reason))
            continue
        found.pop((values[1], values[2]), None)
        found[values[1], values[2]] = values[3] == RIGHT
    return found, rejected


def is_answered(image_id: str, found: Sequence[str], *, right: bool) -> bool:
    """Return whether a search finds an image that its text fits, or another one first."""
    return image_id in found[:FOUND] if right else found[:1] != [image_id]
