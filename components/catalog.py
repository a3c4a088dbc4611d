"""Discovery of the components, and the pipeline's graph, which follows from the names of inputs and outputs."""

from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

from runtime.spec import Component

ROOT = Path(__file__).parent


@cache
def all_components() -> dict[str, Component]:
    """All components by name: one per folder, here or in ``cluster/``, that has a ``spec.py``."""
    folders = sorted(path.parent for pattern in ("*/spec.py", "cluster/*/spec.py") for path in ROOT.glob(pattern))
    modules = [".".join(folder.relative_to(ROOT.parent).parts) for folder in folders]
    components = [import_module(f"{module}.spec").COMPONENT for module in modules]
    return {component.name: component for component in components}


def configurable_components() -> dict[str, Component]:
    """Stages by name: the components with a section in ``params.yaml``."""
    return {name: component for name, component in all_components().items() if component.has_parameters}


def pipeline_components() -> tuple[Component, ...]:
    """Stages of the default pipeline in topological order; independent stages are in alphabetical order."""
    stages = {name: stage for name, stage in configurable_components().items() if stage.in_pipeline}
    writer = {output: name for name, stage in stages.items() for output in stage.outputs}
    graph = {name: [writer[artifact] for artifact in stage.inputs] for name, stage in stages.items()}
    return tuple(stages[name] for name in TopologicalSorter(graph).static_order())
