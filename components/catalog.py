"""Discovery of the components, and the pipeline's graph, which follows from the names of inputs and
outputs."""

from collections.abc import Mapping
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

from bifocal.registry import suggest
from components.cluster import steps
from runtime.spec import ClusterStep, Component

ROOT = Path(__file__).parent
PIPELINES = {
    "embedding": ("register_model", "build_index"),
    "late_interaction": ("register_model",),
    "ranking_head": ("register_ranking_head",),
}
"""Last stages of each pipeline; the first one registers its result. The pipeline also has all
stages before them."""


@cache
def all_components() -> dict[str, Component]:
    """All components by name: the stages, one per folder that has a ``spec.py``, and the steps of a
    cluster."""
    stages = [
        import_module(f"components.{path.parent.name}.spec").COMPONENT
        for path in sorted(ROOT.glob("*/spec.py"))
    ]
    found = [*stages, *(step for step in vars(steps).values() if isinstance(step, ClusterStep))]
    return {component.name: component for component in found}


def configurable_components() -> dict[str, Component]:
    """Stages by name: the components with a section in ``params.yaml``."""
    return {
        name: component for name, component in all_components().items() if component.has_parameters
    }


def pipeline_components(
    pipeline: str = "embedding", values: Mapping[str, Any] | None = None
) -> tuple[Component, ...]:
    """Stages of a pipeline in topological order; independent stages are in alphabetical order.

    With valid parameters, stages whose outputs no other stage reads are left out.
    """
    stages = configurable_components()
    writer = {output: name for name, stage in stages.items() for output in stage.outputs}
    graph: dict[str, list[str]] = {}
    waiting = list(_last_stages(pipeline))
    while waiting:
        stage = stages[waiting.pop()]
        inputs = stage.inputs if values is None else stage.used_inputs(values)
        graph[stage.name] = [writer[artifact] for artifact in inputs]
        waiting += graph[stage.name]
    # The order of the names decides between independent stages.
    ordered = {name: graph[name] for name in stages if name in graph}
    return tuple(stages[name] for name in TopologicalSorter(ordered).static_order())


def final_component(pipeline: str) -> Component:
    """Return the stage that registers the result of a pipeline."""
    return configurable_components()[_last_stages(pipeline)[0]]


def _last_stages(pipeline: str) -> tuple[str, ...]:
    if pipeline not in PIPELINES:
        raise ValueError(f"pipeline is {pipeline!r}; {suggest(pipeline, PIPELINES)}")
    return PIPELINES[pipeline]
