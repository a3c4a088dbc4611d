"""Charts as SVG, in the page and in files of their own; the style sheet of the page has colors for
dark screens."""

from collections.abc import Collection, Mapping, Sequence
from html import escape

import numpy as np

WIDTH, HEIGHT = 440, 270
LEFT, RIGHT, TOP, BOTTOM = 42, 12, 14, 40
KEYS, KEY_HEIGHT = 2, 18
"""Names of the legend in a row, and its height."""
COLORS = ("#2456d6", "#d9571c", "#2456d6", "#d9571c", "#8b8f99")
STYLE = (
    ".line{fill:none;stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}"
    ".line.dashed{stroke-dasharray:2 5;stroke-width:1.8}.grid{stroke:var(--line,#e6e3dd)}"
    ".tick,.label{fill:var(--soft,#6a6e78);font:11px system-ui,sans-serif}"
) + "".join(
    f".line.c{number}{{stroke:var(--c{number},{color})}}.bar.c{number}{{fill:var(--c{number},{color})}}"
    for number, color in enumerate(COLORS)
)


def line_chart(
    lines: Mapping[str, Sequence[float]],
    xs: Sequence[float],
    x_label: str,
    y_label: str,
    dashed: Collection[str] = (),
) -> str:
    """Return an SVG chart of lines in percent, each with one value for each of ``xs``."""
    span = max(xs) - min(xs) or 1
    low = min(10 * (min(min(values) for values in lines.values()) // 10.0), 80.0)

    def point(x: float, y: float) -> str:
        return f"{LEFT + (x - min(xs)) / span * (WIDTH - LEFT - RIGHT):.1f},{_y((y - low) / (100 - low)):.1f}"

    parts = [
        _grid([low + quarter * (100 - low) / 4 for quarter in range(5)], 100.0, low),
        _x_ticks([(x, (x - min(xs)) / span) for x in _ticks(xs)]),
    ]
    for number, (name, values) in enumerate(lines.items()):
        points = " ".join(point(x, y) for x, y in zip(xs, values, strict=True))
        style = f"line c{number}{' dashed' if name in dashed else ''}"
        parts.append(
            f'<polyline class="{style}" points="{points}"><title>{escape(name)}</title></polyline>'
        )
    return _chart(parts, x_label, y_label, list(lines), dashed)


def bar_chart(
    bars: Mapping[str, Sequence[float]], labels: Sequence[str], x_label: str, y_label: str
) -> str:
    """Return an SVG chart of bars in percent, one group of bars for each of ``labels``."""
    highest = max((value for values in bars.values() for value in values), default=0.0)
    top = float(np.ceil(max(highest, 1.0) / 20) * 20)
    group = (WIDTH - LEFT - RIGHT) / len(labels)
    width = 0.76 * group / len(bars)
    parts = [_grid([top * quarter / 4 for quarter in range(5)], top)]
    for number, (name, values) in enumerate(bars.items()):
        for column, value in enumerate(values):
            x = LEFT + column * group + 0.12 * group + number * width
            y = _y(value / top)
            parts.append(
                f'<rect class="bar c{number}" x="{x:.1f}" y="{y:.1f}" width="{width * 0.94:.1f}" '
                f'height="{_y(0) - y:.1f}" rx="1.5">'
                f"<title>{escape(name)}, {escape(labels[column])}: {value:.1f} %</title></rect>"
            )
    parts.append(
        _x_ticks([(label, (column + 0.5) / len(labels)) for column, label in enumerate(labels)])
    )
    return _chart(parts, x_label, y_label, list(bars), ())


def interval_chart(rows: Mapping[str, tuple[float, float, float]], x_label: str) -> str:
    """Return an SVG chart of values, each with the low and the high end of its interval, and of a
    line at 0."""
    ends = [0.0, *(end for row in rows.values() for end in row)]
    low, high, left, height = min(ends), max(ends), 120, 24 * len(rows)

    def x(value: float) -> str:
        return f"{left + (value - low) / ((high - low) or 1) * (WIDTH - left - 30):.1f}"

    parts = [f'<line class="grid" x1="{x(0)}" x2="{x(0)}" y1="0" y2="{height}"/>']
    for number, (name, (value, least, most)) in enumerate(rows.items()):
        y, style = 24 * number + 12, "c0" if least > 0 else "c1" if most < 0 else "c4"
        parts.append(
            f'<text class="label" x="{left - 12}" y="{y + 4}" '
            f'text-anchor="end">{escape(name)}</text><line class="line {style}" '
            f'x1="{x(least)}" x2="{x(most)}" y1="{y}" y2="{y}"/><circle class="bar {style}" '
            f'cx="{x(value)}" cy="{y}" r="4.5"/>'
        )
    labels = {x(end): f"{end:+.1f}" for end in (low, 0.0, high)}
    parts += [
        f'<text class="tick" x="{at}" y="{height + 16}" text-anchor="middle">{text}</text>'
        for at, text in labels.items()
    ]
    parts.append(
        f'<text class="label" x="{WIDTH - 30}" y="{height + 34}" '
        f'text-anchor="end">{escape(x_label)}</text>'
    )
    view = f'viewBox="0 0 {WIDTH} {height + 40}" role="img" aria-label="{escape(x_label)}"'
    return f"<svg {view}><style>{STYLE}</style>{''.join(parts)}</svg>"


def _chart(
    parts: Sequence[str], x_label: str, y_label: str, names: Sequence[str], dashed: Collection[str]
) -> str:
    above = KEY_HEIGHT * -(-len(names) // KEYS)
    keys = []
    for number, name in enumerate(names):
        x, y = (
            LEFT + (number % KEYS) * (WIDTH - LEFT) / KEYS,
            KEY_HEIGHT * (number // KEYS + 0.5) - above,
        )
        style = f"line c{number}{' dashed' if name in dashed else ''}"
        keys.append(
            f'<line class="{style}" x1="{x:g}" x2="{x + 18:g}" y1="{y:g}" y2="{y:g}"/>'
            f'<text class="label" x="{x + 24:g}" y="{y + 4:g}">{escape(name)}</text>'
        )
    return (
        f'<svg viewBox="0 {-above} {WIDTH} {HEIGHT + above}" role="img" '
        f'aria-label="{escape(y_label)} against '
        f'{escape(x_label)}"><style>{STYLE}</style>{"".join(keys)}'
        f"{''.join(parts)}"
        f'<text class="label" x="{(WIDTH + LEFT) / 2:.0f}" y="{HEIGHT - 4}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
        f'<text class="label" transform="translate(11 {(HEIGHT - BOTTOM + TOP) / 2:.0f}) '
        'rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text></svg>'
    )


def _y(fraction: float) -> float:
    return HEIGHT - BOTTOM - fraction * (HEIGHT - TOP - BOTTOM)


def _grid(values: Sequence[float], top: float, low: float = 0.0) -> str:
    heights = [(value, _y((value - low) / (top - low))) for value in values]
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value, y in heights
    )


def _x_ticks(ticks: Sequence[tuple[object, float]]) -> str:
    return "".join(
        f'<text class="tick" x="{LEFT + fraction * (WIDTH - LEFT - RIGHT):.1f}" '
        f'y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{escape(str(value))}</text>'
        for value, fraction in ticks
    )


def _ticks(xs: Sequence[float]) -> list[float]:
    """Return the ends of ``xs`` and a few round values between them that do not overlap."""
    wanted = {min(xs), max(xs)} | {x for x in (5, 10, 20, 30, 40, 50, 100) if min(xs) < x < max(xs)}
    kept: list[float] = []
    for x in sorted(wanted):
        if not kept or (x - kept[-1]) > 0.06 * (max(xs) - min(xs)):
            kept.append(x)
    return kept
