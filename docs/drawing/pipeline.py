"""The pipeline as a drawing, from the declarations of its stages."""

from collections.abc import Mapping
from itertools import count

from components.catalog import pipeline_components
from docs.drawing.svg import Arrow, Box, drawing


def pipeline_drawing() -> str:
    """Return the SVG of the stages; an artifact that a stage also gets through another one has no
    arrow of its own."""
    stages = {stage.name: stage for stage in pipeline_components()}
    writer = {output: stage.name for stage in stages.values() for output in stage.outputs}
    before = {
        name: {writer[artifact] for artifact in stage.inputs} for name, stage in stages.items()
    }
    columns = _columns(before)
    rows: dict[int, count[int]] = {}
    size = {column: list(columns.values()).count(column) for column in columns.values()}
    boxes, most = {}, max(size.values())
    for name, column in columns.items():
        row = next(rows.setdefault(column, count()))
        boxes[name] = Box(column, row + (most - size[column]) / 2, name, "step")
    arrows = [
        Arrow(
            start,
            name,
            ", ".join(artifact for artifact in stage.inputs if writer[artifact] == start),
        )
        for name, stage in stages.items()
        for start in before[name]
        if not any(start in _ancestors(other, before) for other in before[name])
    ]
    labeled = {
        arrow.start: arrow for arrow in reversed(arrows)
    }  # one label for all arrows of an artifact
    arrows = [
        arrow if labeled[arrow.start] is arrow else Arrow(arrow.start, arrow.end)
        for arrow in arrows
    ]
    return drawing("Stages of the pipeline", boxes, sorted(arrows), width=140, gap=100)


def _columns(before: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the column of each stage: one that only feeds a late stage is drawn just before it."""
    depth: dict[str, int] = {}
    for name in before:  # in topological order
        depth[name] = 1 + max((depth[other] for other in before[name]), default=-1)
    for name, others in before.items():
        if not others and name != next(iter(before)):
            depth[name] = (
                min(depth[after] for after, starts in before.items() if name in starts) - 1
            )
    return depth


def _ancestors(name: str, before: Mapping[str, set[str]]) -> set[str]:
    return before[name].union(*(_ancestors(other, before) for other in before[name]))
