"""``dvc.yaml``, rendered from the declarations of the stages and the imports of their code."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from components.catalog import PIPELINES, pipeline_components
from runtime import identity
from runtime.closure import LIBRARIES, is_versioned
from runtime.spec import Component, Plot

HEADER = "# Rendered from components/*/spec.py and their imports by 'python -m pipelines render'; edit those instead.\n"
PACKAGES_STAGE = "packages"
PACKAGES_FILE = "packages.json"
ROOT = Path(__file__).parent.parent


def dvc_components(pipeline: str = "embedding") -> list[Component]:
    """Stages of DVC: a pipeline without components that have side effects."""
    return [component for component in pipeline_components(pipeline) if not component.side_effects]


def render(values: Mapping[str, Any], folder: str = "") -> str:
    """Return the text of a ``dvc.yaml``.

    Args:
        values: values of ``params.yaml``; each path of a user file becomes a dependency.
        folder: folder of ``params.yaml`` and ``artifacts``, relative to the root of the repository; "" is the root.
    """
    home = PurePosixPath(folder)
    components = dvc_components(values["pipeline"])
    plots: list[Any] = [_plot(plot) for component in components for plot in component.plots]
    document = {
        "stages": {
            PACKAGES_STAGE: _packages_stage(home),
            **{component.name: _stage(component, values, home) for component in components},
        },
        "metrics": [f"artifacts/{path}" for component in components for path in component.metrics],
        "plots": plots + [f"artifacts/{path}" for component in components for path in component.image_dirs],
    }
    return HEADER + yaml.safe_dump(document, sort_keys=False, width=120)


def package_versions() -> dict[str, str]:
    """Installed version of every package that a stage of DVC depends on, and Python's."""
    return identity.installed_versions(
        sorted(
            {name for pipeline in PIPELINES for stage in dvc_components(pipeline) for name in identity.packages(stage)}
        )
    )


def compact(files: Iterable[str], root: Path = ROOT) -> Iterator[str]:
    """Yield ``files`` with each folder that they cover completely in place of its files."""
    known = frozenset(files)
    for library in LIBRARIES:
        yield from _compact(root / library, known, root)


def _compact(folder: Path, known: frozenset[str], root: Path) -> Iterator[str]:
    # A folder with a README is no dependency as a whole: DVC would hash the README too.
    inside = {path.relative_to(root).as_posix() for path in folder.rglob("*") if is_versioned(path)}
    if inside and inside <= known:
        yield folder.relative_to(root).as_posix()
    elif inside & known:
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                yield from _compact(path, known, root)
            elif path.relative_to(root).as_posix() in known:
                yield path.relative_to(root).as_posix()


def _plot(plot: Plot) -> dict[str, Any]:
    y = {f"artifacts/{plot.path}": plot.y}
    return {plot.title: {"x": plot.x, "y": y, "title": plot.title, "x_label": plot.x, "y_label": plot.y}}


def _packages_stage(home: PurePosixPath) -> dict[str, Any]:
    """Return the stage that writes the installed versions on each 'dvc repro'; a stage without change is cheap."""
    file = str(home / "artifacts" / PACKAGES_FILE)
    return {"cmd": f"python -m pipelines packages {file}", **_wdir(home), "always_changed": True, "outs": [file]}


def _stage(component: Component, values: Mapping[str, Any], home: PurePosixPath) -> dict[str, Any]:
    at_root = home == PurePosixPath()
    options = "" if at_root else f" --params {home / 'params.yaml'} --artifacts {home / 'artifacts'}"
    sections = ["seed", component.name]
    packages = {str(home / "artifacts" / PACKAGES_FILE): [identity.PYTHON, *identity.packages(component)]}
    return {
        "cmd": f"python -m components {component.name}{options}",
        **_wdir(home),
        "deps": [
            *compact(identity.sources(component).files),
            *component.user_paths(values[component.name]).values(),
            *(str(home / "artifacts" / name) for name in component.inputs),
        ],
        "params": [*(sections if at_root else [{str(home / "params.yaml"): sections}]), packages],
        "outs": [str(home / "artifacts" / name) for name in component.outputs],
    }


def _wdir(home: PurePosixPath) -> dict[str, str]:
    return {} if home == PurePosixPath() else {"wdir": "/".join([".."] * len(home.parts))}
