"""``dvc.yaml``, rendered from the declarations of the stages and their imports, and repair of DVC's
table of locks."""

import os
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from bifocal.onnx.files import parse_json
from components.catalog import PIPELINES, pipeline_components
from runtime import identity
from runtime.spec import Component, Plot

HEADER = (
    "# Rendered from components/*/spec.py and their imports by 'python -m pipelines render'; "
    "edit those instead.\n"
)
PACKAGES_STAGE = "packages"
PACKAGES_FILE = "packages.json"
CODE = "code"
"""Key of the table in this file that has the code hash of each stage. DVC itself compares files by
their bytes."""
TABLE = Path(".dvc", "tmp", "rwlock")
"""Table of the files that DVC's processes read and write."""
PATIENCE = 0.5
"""Seconds after which no process is still writing an unreadable table."""


def dvc_components(
    pipeline: str = "embedding", values: Mapping[str, Any] | None = None
) -> list[Component]:
    """Stages of DVC: a pipeline without components that have side effects."""
    return [stage for stage in pipeline_components(pipeline, values) if not stage.side_effects]


def recipe_folder(recipe: Path) -> Path:
    """Return the run folder of a recipe: recipes/scenes/twins.yaml has runs/scenes/twins."""
    return Path("runs") / recipe.parent.name / recipe.stem


def render(values: Mapping[str, Any], folder: str = "") -> str:
    """Return the text of a ``dvc.yaml`` for ``folder``, relative to the root of the repository (""
    is the root)."""
    home = PurePosixPath(folder)
    components = dvc_components(values["pipeline"], values)
    plots: list[Any] = [_plot(plot) for component in components for plot in component.plots]
    document = {
        "stages": {
            PACKAGES_STAGE: _packages_stage(home),
            **{component.name: _stage(component, values, home) for component in components},
        },
        "metrics": [f"artifacts/{path}" for component in components for path in component.metrics],
        "plots": plots
        + [f"artifacts/{path}" for component in components for path in component.image_dirs],
    }
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=120)


def versions_and_code() -> dict[str, Any]:
    """Return the installed versions, and below ``CODE`` the code hash of each stage of DVC."""
    stages = {stage.name: stage for pipeline in PIPELINES for stage in dvc_components(pipeline)}
    return {
        **package_versions(),
        CODE: {name: identity.source_hash(stage) for name, stage in stages.items()},
    }


def package_versions() -> dict[str, str]:
    """Installed version of every package that a stage of DVC depends on, and Python's."""
    return identity.installed_versions(
        sorted(
            {
                name
                for pipeline in PIPELINES
                for stage in dvc_components(pipeline)
                for name in identity.packages(stage)
            }
        )
    )


def _plot(plot: Plot) -> dict[str, Any]:
    y = {f"artifacts/{plot.path}": plot.y}
    return {
        plot.title: {"x": plot.x, "y": y, "title": plot.title, "x_label": plot.x, "y_label": plot.y}
    }


def _packages_stage(home: PurePosixPath) -> dict[str, Any]:
    """Return the stage that writes versions and code hashes on each 'dvc repro'; it takes a second
    or two."""
    file = str(home / "artifacts" / PACKAGES_FILE)
    return {
        "cmd": f"python -m pipelines packages {file}",
        **_wdir(home),
        "always_changed": True,
        "outs": [file],
    }


def _stage(component: Component, values: Mapping[str, Any], home: PurePosixPath) -> dict[str, Any]:
    at_root = home == PurePosixPath()
    options = (
        "" if at_root else f" --params {home / 'params.yaml'} --artifacts {home / 'artifacts'}"
    )
    sections = ["seed", component.name]
    keys = [f"{CODE}.{component.name}", identity.PYTHON, *identity.packages(component)]
    packages = {str(home / "artifacts" / PACKAGES_FILE): keys}
    modules = [
        os.path.relpath(file) for file in identity.user_modules(values[component.name]).values()
    ]
    return {
        "cmd": f"python -m components {component.name}{options}",
        **_wdir(home),
        "deps": [
            *component.user_paths(values[component.name]).values(),
            *(file for file in modules if not file.startswith(("..", ".venv"))),
            *(str(home / "artifacts" / name) for name in component.used_inputs(values)),
        ],
        "params": [*(sections if at_root else [{str(home / "params.yaml"): sections}]), packages],
        "outs": [str(home / "artifacts" / name) for name in component.outputs],
    }


def _wdir(home: PurePosixPath) -> dict[str, str]:
    return {} if home == PurePosixPath() else {"wdir": "/".join([".."] * len(home.parts))}


def remove_damaged_table(root: Path) -> bool:
    """Remove the table below ``root`` if it cannot be read, and return whether it was removed.

    A killed DVC leaves its table empty or cut off, and every later command fails. A readable table
    is kept: DVC itself removes the entries of processes that have ended.
    """
    table = root / TABLE
    if _is_readable(table):
        return False
    time.sleep(PATIENCE)
    if _is_readable(table):
        return False
    table.unlink(missing_ok=True)
    return True


def _is_readable(table: Path) -> bool:
    try:
        parse_json(table.read_bytes())
    except FileNotFoundError:
        return True
    except ValueError:  # not JSON, or not UTF-8
        return False
    return True
