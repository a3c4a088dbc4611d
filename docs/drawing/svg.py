"""Boxes in a grid, with arrows between them, as SVG. The same drawing gives the same bytes."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple
from xml.sax.saxutils import escape

Kind = Literal["data", "frozen", "trained", "step", "loss"]
FILL: Mapping[Kind, tuple[str, str]] = {
    "data": ("#ffffff", "#868e96"),
    "frozen": ("#e9ecef", "#868e96"),
    "trained": ("#dbe4ff", "#4263eb"),
    "step": ("#ffffff", "#212529"),
    "loss": ("#ffe8cc", "#e8590c"),
}
"""Fill and border of each kind of box."""
LINE, FONT, SMALL = 17, 13, 11
ROW, GAP_X, GAP_Y, MARGIN = 58, 46, 26, 14


class Box(NamedTuple):
    """Box of a drawing.

    Attributes:
        column, row: place in the grid; halves are allowed.
        text: lines, separated by a newline; the first is bold.
    """

    column: float
    row: float
    text: str
    kind: Kind = "step"


class Arrow(NamedTuple):
    """Arrow between two boxes, by their names; ``label`` is written at its start."""

    start: str
    end: str
    label: str = ""


def drawing(
    title: str,
    boxes: Mapping[str, Box],
    arrows: Sequence[Arrow],
    *,
    width: int = 150,
    gap: int = GAP_X,
) -> str:
    """Return the SVG of boxes and arrows.

    Args:
        title: text for screen readers.
        width: of a box, in pixels.
        gap: between two columns, in pixels.
    """
    places = {name: _place(box, width, gap) for name, box in boxes.items()}
    right = max(x + width for x, _ in places.values()) + MARGIN
    bottom = max(y + ROW for _, y in places.values()) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {right:g} {bottom:g}" '
        f'width="{right:g}" font-family="Helvetica, Arial, sans-serif" role="img">',
        f"<title>{escape(title)}</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto-start-reverse"><path d="M0 0 8 4 0 8z" '
        'fill="#495057"/></marker></defs>',
        f'<rect width="{right:g}" height="{bottom:g}" rx="6" fill="#ffffff"/>',
        *(_arrow(places[arrow.start], places[arrow.end], arrow.label, width) for arrow in arrows),
        *(_box(box, places[name], width) for name, box in boxes.items()),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _place(box: Box, width: int, gap: int) -> tuple[float, float]:
    return MARGIN + box.column * (width + gap), MARGIN + box.row * (ROW + GAP_Y)


def _box(box: Box, place: tuple[float, float], width: int) -> str:
    (x, y), (fill, border) = place, FILL[box.kind]
    lines = box.text.split("\n")
    top = y + ROW / 2 - (len(lines) - 1) * LINE / 2 + FONT / 3
    texts = [
        f'<text x="{x + width / 2:g}" y="{top + number * LINE:g}" text-anchor="middle" '
        f'font-size="{SMALL if number else FONT}" font-weight="{"normal" if number else "bold"}" '
        f'fill="#212529">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    corner = ROW / 2 if box.kind == "data" else 6
    rectangle = (
        f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{ROW}" rx="{corner:g}" '
        f'fill="{fill}" stroke="{border}" stroke-width="1.3"/>'
    )
    return "\n".join([rectangle, *texts])


def _arrow(start: tuple[float, float], end: tuple[float, float], label: str, width: int) -> str:
    (x0, y0), (x1, y1) = start, end
    if x1 >= x0 + width:  # to the right: along the row, then up or down just before the end
        first, turn, last = (x0 + width, y0 + ROW / 2), x1 - GAP_X / 2, (x1, y1 + ROW / 2)
        path = f"M{first[0]:g} {first[1]:g}H{turn:g}V{last[1]:g}H{last[0]:g}"
        at, anchor = (first[0] + 4, first[1] - 5), "start"
    else:  # to the row above or below
        down = y1 > y0
        first, last = (
            (x0 + width / 2, y0 + (ROW if down else 0)),
            (x1 + width / 2, y1 + (0 if down else ROW)),
        )
        path = f"M{first[0]:g} {first[1]:g}V{(first[1] + last[1]) / 2:g}H{last[0]:g}V{last[1]:g}"
        at, anchor = (first[0] + 5, (first[1] + last[1]) / 2 - 3), "start"
    text = (
        f'<text x="{at[0]:g}" y="{at[1]:g}" text-anchor="{anchor}" font-size="{SMALL}" '
        'fill="#495057">'
    )
    line = (
        f'<path d="{path}" fill="none" stroke="#495057" stroke-width="1.3" '
        'marker-end="url(#head)"/>'
    )
    return line + (f"\n{text}{escape(label)}</text>" if label else "")
