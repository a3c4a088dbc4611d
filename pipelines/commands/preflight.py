"""``python -m pipelines preflight``."""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.commands import options
from pipelines.commands.compile import head_commit, load_parameters, load_resources

if TYPE_CHECKING:
    from pipelines.kubeflow.flows import FlowName
    from pipelines.kubeflow.resources import Resources


@click.command()
@options.recipes
@options.settings
@options.flow
@options.images
@options.resources
@options.revision
@options.skipped_checks
def preflight(
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
    flow: "FlowName",
    images: Path | None,
    overlays: tuple[Path, ...],
    revision: str | None,
    skipped: tuple[str, ...],
) -> None:
    """Check whether a cluster could run the pipeline: images, repository, buckets and permissions.

    'run --runner cluster' and 'schedule apply' make the same checks first. KFP_NAMESPACE is the namespace of the runs.
    """
    cluster = load_resources(images, overlays)
    check_cluster([load_parameters(recipes, settings)], cluster, revision or head_commit(), skipped, [flow])
    click.echo("no problem was found")


def check_cluster(
    values: Iterable[Mapping[str, Any]],
    cluster: "Resources",
    revision: str,
    skipped: Sequence[str],
    flows: Collection["FlowName"],
) -> None:
    """Run the checks for the flows of pipelines with some parameters."""
    from pipelines.kubeflow.preflight import Subject, check_all

    check_all(Subject(tuple(values), cluster, revision, os.environ.get("KFP_NAMESPACE"), flows), skipped)
