"""``python -m pipelines compile``."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from components import catalog
from pipelines.commands import options
from runtime import parameters

if TYPE_CHECKING:
    from pipelines.kubeflow.flows import FlowName
    from pipelines.kubeflow.resources import Resources


@click.command("compile")
@options.recipes
@options.settings
@options.flow
@options.images
@options.resources
@options.revision
@click.option("--output", type=click.Path(path_type=Path), default=Path("pipeline.yaml"), show_default=True)
def compile_command(
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
    flow: "FlowName",
    images: Path | None,
    overlays: tuple[Path, ...],
    revision: str | None,
    output: Path,
) -> None:
    """Compile the pipeline for Kubeflow."""
    cluster = load_resources(images, overlays)
    output.write_text(compile_pipeline_for(recipes, cluster, revision or head_commit(), settings, flow))
    click.echo(output)


def load_resources(images: Path | None, overlays: Sequence[Path] = ()) -> "Resources":
    """Return the values of ``resources.yaml``, with the digests of a JSON file, and with files that replace keys."""
    from pipelines.kubeflow import resources

    return resources.load(images=resources.load_images(images) if images else None, overlays=overlays)


def compile_pipeline_for(
    recipes: Sequence[Path],
    cluster: "Resources",
    revision: str,
    settings: Sequence[str] = (),
    flow: "FlowName" = "train",
) -> str:
    """Return the compiled pipeline of ``params.yaml`` as YAML, with ``recipes`` and ``settings`` ("KEY=VALUE")."""
    from pipelines.kubeflow import compile as kubeflow

    return kubeflow.compile_pipeline(load_parameters(recipes, settings), cluster, revision, flow)


def load_parameters(recipes: Sequence[Path], settings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the validated values of ``params.yaml`` with ``recipes`` and ``settings``."""
    values = parameters.load(Path("params.yaml"), recipes, settings)
    parameters.validate(values, catalog.configurable_components().values())
    return values


def head_commit() -> str:
    """Return the commit of this checkout."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"this folder has no git commit ({done.stderr.strip()}): name one with --revision")
    return done.stdout.strip()
