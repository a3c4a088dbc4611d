"""Results as dots with their intervals, from the records and the JSON files of the benchmarks."""

import math
import re
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from benchmarks.common import RESULTS, ROOT, read_results
from benchmarks.render import columns_of

Dot = tuple[float, float, float]
"""Value, and the ends of its interval."""
COLORS = ("#4263eb", "#e8590c", "#868e96")
LABEL, WIDTH, ROW, TOP = 240, 720, 26, 40


def result_drawings() -> dict[str, str]:
    """Return the SVG of each plot by its name; 6,000 photographs were measured with former
    recipes."""
    found = {result.name: result for result in read_results(RESULTS / "quality.first_use.json")}
    kinds = ("bifocal train", "fast.yaml", "class names")
    folders = [
        name.partition(":")[0]
        for name in found
        if name.endswith(kinds[0]) and not name.startswith("6")
    ]
    sums = {
        f"{folder.replace(' each', '')}: "
        f"{found[f'{folder}: CPU time of bifocal train'].value:.1f} min": [
            (found[f"{folder}: recall sum, {kind}"].value,) * 3 for kind in kinds
        ]
        for folder in folders
    }
    queries = {
        result.name.split(", ", 1)[1].partition(":")[0]: [(result.value,) * 3]
        for result in read_results(RESULTS / "speed.engines.json")
        if "CPU time of a query" in result.name
    }
    peers = {
        result.name: [(math.log10(result.value),) * 3]
        for file in sorted(RESULTS.glob("peers.*.json"))
        for result in read_results(file)
    }
    return {
        "peers": dots("Times as long as Bifocal", ("CPU time",), peers, 4, start=-1, powers=True),
        "engines": dots("A query in two million vectors", ("CPU time, ms",), queries, 24),
        "leaderboard_flickr8k": dots(
            "R@1 on Flickr8k, percent", ("caption", "image"), _recalls(), 40
        ),
        "differences": dots(
            "Difference in recall sum, with its 95 % interval",
            ("of 600",),
            _differences(),
            75,
            -225,
        ),
        "few_photographs": dots("Recall sum on the test split, of 600", kinds, sums, 600),
    }


def _recalls() -> dict[str, list[Dot]]:
    """Return the R@1 of each system on photographs, with the standard deviation over seeds as its
    interval."""
    rows = {}
    for name, *cells in _columns("system", "caption R@1", "image R@1"):
        values = [[float(number) for number in re.findall(r"[\d.]+", cell)] for cell in cells]
        rows[name] = [
            (value[0], value[0] - sum(value[1:]), value[0] + sum(value[1:]))
            for value in values
            if value
        ]
    return rows


def _differences() -> dict[str, list[Dot]]:
    """Return the differences of compared systems on photographs."""
    rows = {}
    for name, other, cell in _columns("system", "compared with", "difference"):
        if values := [float(number) for number in re.findall(r"[+-][\d.]+", cell)]:
            rows[f"{name}, to {other}"] = [(values[0], values[1], values[2])]
    return rows


def _columns(*columns: str) -> list[list[str]]:
    text = (ROOT / "docs" / "records" / "leaderboard_flickr8k.md").read_text()
    return [line.strip("|").split("|") for line in columns_of(text, columns).splitlines()[2:]]


def dots(
    title: str,
    series: Sequence[str],
    rows: Mapping[str, Sequence[Dot]],
    end: float,
    start: float = 0,
    *,
    powers: bool = False,
) -> str:
    """Return the SVG of a row of dots per name, from ``start`` to ``end``; with ``powers``, of
    exponents of 10."""
    label = max(LABEL, 7 * max(map(len, rows)))

    def place(value: float) -> float:
        return label + (WIDTH - label - 30) * (value - start) / (end - start)

    bottom = TOP + ROW * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 24}" '
        f'width="{WIDTH}" font-family="Helvetica, Arial, sans-serif" font-size="13" '
        'fill="#212529" role="img">',
        f'<title>{escape(title)}</title><rect width="{WIDTH}" height="{bottom + 24}" rx="6" '
        'fill="#ffffff"/>',
        f'<text x="12" y="22" font-weight="bold">{escape(title)}</text>',
    ]
    for number, name in enumerate(series):
        x = LABEL + 130 + 110 * number
        parts.append(
            f'<circle cx="{x}" cy="18" r="5" fill="{COLORS[number]}"/><text x="{x + 10}" '
            f'y="22">{name}</text>'
        )
    steps = int(end - start) if powers else 4
    for tick in (start + part * (end - start) / steps for part in range(steps + 1)):
        color = COLORS[2] if start and not tick else "#dee2e6"  # a ratio of 1, or no difference
        parts.append(f'<path d="M{place(tick):g} {TOP - 6}V{bottom}" stroke="{color}"/>')
        parts.append(
            f'<text x="{place(tick):g}" y="{bottom + 16}" '
            f'text-anchor="middle">{10**tick if powers else tick:g}</text>'
        )
    for number, (name, row) in enumerate(rows.items()):
        y = TOP + ROW * number + 8
        parts.append(f'<text x="12" y="{y + 4}">{escape(name)}</text>')
        for color, (value, low, high) in zip(COLORS, row, strict=False):
            parts.append(
                f'<path d="M{place(low):g} {y}H{place(high):g}" stroke="{color}" stroke-width="3"/>'
            )
            parts.append(f'<circle cx="{place(value):g}" cy="{y}" r="5" fill="{color}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"
