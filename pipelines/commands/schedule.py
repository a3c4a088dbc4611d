"""``python -m pipelines schedule``."""

from pathlib import Path

import click

from pipelines.commands import options
from pipelines.commands.compile import compile_pipeline_for, head_commit, load_parameters, load_resources
from pipelines.commands.preflight import check_cluster


@click.command()
@options.images
@options.resources
@options.skipped_checks
@click.argument("action", type=click.Choice(["diff", "apply", "list"]))
def schedule(images: Path | None, overlays: tuple[Path, ...], skipped: tuple[str, ...], action: str) -> None:
    """Compare the schedules of the cluster at KFP_ENDPOINT with the declared ones, change them, or list them.

    pipelines/kubeflow/schedules.yaml declares the schedules. Each is pinned to this commit, its images and its
    parameters.
    """
    from pipelines.kubeflow import schedule as schedules
    from pipelines.kubeflow.client import Target, kfp_client

    declared = schedules.load()
    with kfp_client() as client:
        if action == "list":
            click.echo("\n".join(schedules.list_schedules(client)) or "the server has no schedule of this project")
            return
        target = Target(client, load_resources(images, overlays), head_commit())
        if action == "apply":
            values = [load_parameters([Path(path) for path in entry.recipes]) for entry in declared.values()]
            flows = {entry.flow for entry in declared.values() if entry.enabled}
            check_cluster(values, target.resources, target.revision, skipped, flows)
        changes = schedules.plan(
            declared,
            target,
            lambda entry: compile_pipeline_for(
                [Path(path) for path in entry.recipes], target.resources, target.revision, flow=entry.flow
            ),
        )
        for change in changes:
            click.echo(f"{change.action:8}{change.name}")
        if action == "apply":
            for name in schedules.apply(declared, changes, target):
                click.echo(f"{name}: a run is in progress, so its former schedule is paused; the next apply deletes it")
