"""``python -m pipelines schedule``."""

from pathlib import Path

import click

from pipelines.commands import options
from pipelines.commands.compile import compile_pipeline_for


@click.command()
@options.images
@click.argument("action", type=click.Choice(["diff", "apply", "list"]))
def schedule(images: Path | None, action: str) -> None:
    """Compare the schedules of the cluster at KFP_ENDPOINT with the declared ones, change them, or list them.

    pipelines/kubeflow/schedules.yaml declares the schedules. Each is pinned to this commit, its images and its
    parameters.
    """
    from pipelines.kubeflow import schedule as schedules
    from pipelines.kubeflow.client import kfp_client

    declared = schedules.load()
    with kfp_client() as client:
        if action == "list":
            click.echo("\n".join(schedules.list_schedules(client)) or "the server has no schedule of this project")
            return
        changes = schedules.plan(
            declared, client, lambda recipes: compile_pipeline_for([Path(recipe) for recipe in recipes], images, None)
        )
        for change in changes:
            click.echo(f"{change.action:8}{change.name}")
        if action == "apply":
            schedules.apply(declared, changes, client)
