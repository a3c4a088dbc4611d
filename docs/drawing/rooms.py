"""The rooms of the repository as a drawing, from their imports: a room stands above all rooms that
it imports."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from docs.drawing.svg import Box, Kind, drawing

ROOT = Path(__file__).parents[2]
LAYERS = ("runtime", "components", "pipelines")
ANSWERING = ("monitoring", "promotion", "search", "serving")
GROUND = ("durable", "onnx")
CAPTIONS: Mapping[str, str] = {
    "pipelines": "graph, commands",
    "components": "one per stage",
    "runtime": "how a stage runs",
    "backbones": "networks",
    "datasets": "images, captions",
    "durable": "safe writes",
    "evaluation": "evaluators",
    "export": "ONNX graphs",
    "features": "of images",
    "hubness": "corrections",
    "image_encoders": "features to vector",
    "localization": "text to heatmap",
    "losses": "scores to number",
    "metrics": "pure functions",
    "models": "two encoders",
    "monitoring": "drift",
    "onnx": "exported models",
    "promotion": "decision",
    "ranking_heads": "labels, scores",
    "report": "page, charts",
    "search": "index, query",
    "serving": "service, page",
    "sorters": "scores to ranks",
    "text": "vectorizers, store",
    "text_encoders": "text to vector",
    "training": "loop, batches",
}


def rooms_drawing() -> str:
    """Return the SVG of the rooms, one row per floor, and the layers above them."""
    floors = room_floors(ROOT)
    top = max(floors.values())
    rows = defaultdict[int, list[str]](list)
    for room in sorted(floors):
        rows[top - floors[room] + len(LAYERS)].append(room)
    rows |= {len(LAYERS) - 1 - number: [layer] for number, layer in enumerate(LAYERS)}
    widest = max(map(len, rows.values()))
    boxes = {
        room: Box(
            number + (widest - len(row)) / 2, row_number, f"{room}\n{CAPTIONS[room]}", _kind(room)
        )
        for row_number, row in sorted(rows.items())
        for number, room in enumerate(row)
    }
    return drawing("Rooms: each imports rooms of lower rows only", boxes, [], width=140, gap=24)


def room_floors(root: Path) -> dict[str, int]:
    """Return the floor of each folder of ``bifocal``, from 1: one more than the highest floor that
    it imports."""
    folders = {path.parent.name for path in (root / "bifocal").glob("*/__init__.py")}
    below = {room: set(_imported(root / "bifocal" / room)) & folders - {room} for room in folders}

    @cache
    def floor(room: str) -> int:
        return 1 + max(map(floor, below[room]), default=0)

    return {room: floor(room) for room in folders}


def _imported(folder: Path) -> Iterator[str]:
    """Yield the rooms that the modules of a folder import, in functions and for type checkers
    too."""
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
            else:
                continue
            yield from (name.split(".")[1] for name in names if name.startswith("bifocal."))


def _kind(room: str) -> Kind:
    return "loss" if room in ANSWERING else "frozen" if room in (*GROUND, *LAYERS) else "trained"
