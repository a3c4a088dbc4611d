"""``python -m pipelines compile``."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from components import catalog
from pipelines.commands import options
from runtime import parameters


@click.command("compile")
@options.recipes
@options.settings
@options.images
@options.revision
@click.option("--output", type=click.Path(path_type=Path), default=Path("pipeline.yaml"), show_default=True)
def compile_command(
    recipes: tuple[Path, ...], settings: tuple[str, ...], images: Path | None, revision: str | None, output: Path
) -> None:
    """Compile the pipeline for Kubeflow."""
    output.write_text(compile_pipeline_for(recipes, images, revision, settings=settings))
    click.echo(output)


def compile_pipeline_for(
    recipes: Sequence[Path],
    images: Path | None,
    revision: str | None,
    *,
    settings: Sequence[str] = (),
    push: bool | None = None,
) -> str:
    """Return the compiled pipeline of ``params.yaml`` with ``recipes``, as YAML.

    Args:
        images: JSON file with the digest of each image.
        revision: git commit of the user files; by default this checkout's.
        settings: values that replace those of ``params.yaml`` and the recipes, as ``"KEY=VALUE"``.
        push: replaces ``push`` of ``resources.yaml``, for a run on this machine, which keeps checkpoints on its disk.
    """
    from pipelines.kubeflow import compile as kubeflow
    from pipelines.kubeflow import resources

    values = parameters.load(Path("params.yaml"), recipes, settings)
    parameters.validate(values, catalog.configurable_components().values())
    cluster = resources.load(images=resources.load_images(images) if images else None)
    if push is not None:
        cluster = cluster.model_copy(update={"push": push, "checkpoints": None})
    return kubeflow.compile_pipeline(values, cluster, revision or head_commit())


def head_commit() -> str:
    """Return the commit of this checkout.

    Raises:
        ValueError: the working directory is not a git checkout with a commit.
    """
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"this folder has no git commit ({done.stderr.strip()}): name one with --revision")
    return done.stdout.strip()
