"""``dvc.yaml``, rendered from the declarations of the stages."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from components.catalog import pipeline_components
from runtime.spec import Component, Plot

HEADER = "# Rendered from components/*/spec.py by 'python -m pipelines render'; edit those instead.\n"


def render(values: Mapping[str, Any], folder: str = "") -> str:
    """Return the text of a ``dvc.yaml``.

    Args:
        values: values of ``params.yaml``; each path of a user file becomes a dependency.
        folder: folder of ``params.yaml`` and ``artifacts``, relative to the root of the repository; "" is the root.
    """
    home = PurePosixPath(folder)
    components = [component for component in pipeline_components() if not component.side_effects]
    plots: list[Any] = [
        _plot(plot, plot.column(component.params, {"seed": values["seed"]} | dict(values[component.name])))
        for component in components
        for plot in component.plots
    ]
    document = {
        "stages": {component.name: _stage(component, values, home) for component in components},
        "metrics": [f"artifacts/{path}" for component in components for path in component.metrics],
        "plots": plots + [f"artifacts/{path}" for component in components for path in component.image_dirs],
    }
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=120)


def _plot(plot: Plot, column: str) -> dict[str, Any]:
    y = {f"artifacts/{plot.path}": column}
    return {plot.title: {"x": plot.x, "y": y, "title": plot.title, "x_label": plot.x, "y_label": column}}


def _stage(component: Component, values: Mapping[str, Any], home: PurePosixPath) -> dict[str, Any]:
    at_root = home == PurePosixPath()
    options = "" if at_root else f" --params {home / 'params.yaml'} --artifacts {home / 'artifacts'}"
    sections = ["seed", component.name]
    stage: dict[str, Any] = {"cmd": f"python -m components {component.name}{options}"}
    if not at_root:
        stage["wdir"] = "/".join([".."] * len(home.parts))
    stage["deps"] = [
        *component.all_code_paths,
        *component.user_paths(values[component.name]).values(),
        *(str(home / "artifacts" / name) for name in component.inputs),
    ]
    stage["params"] = sections if at_root else [{str(home / "params.yaml"): sections}]
    stage["outs"] = [str(home / "artifacts" / name) for name in component.outputs]
    return stage
