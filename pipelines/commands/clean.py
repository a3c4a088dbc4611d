"""``python -m pipelines clean``."""

from pathlib import Path

import click

from pipelines.commands import options


@click.command()
@options.resources
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), help="By default retention.yaml.")
@click.option("--delete", is_flag=True, help="Delete; without it, nothing is changed.")
def clean(overlays: tuple[Path, ...], policy_file: Path | None, delete: bool) -> None:
    """List models, releases, artifacts and checkpoints that nothing needs any more; with --delete, delete them.

    Needed are models and releases of versions with an alias and of the newest versions, the artifacts they were made
    of, the newest artifacts of each name, and all that changed in the last days, by pipelines/policies/retention.yaml.
    Models and releases are deleted some days after a call with --delete first found them unneeded; versions stay.
    """
    from components.cluster.clean.run import run
    from components.cluster.clean.spec import CleanParams
    from pipelines import policies
    from pipelines.commands.compile import load_resources
    from pipelines.kubeflow.flows import clean_settings

    policy = policies.load_retention(policy_file or policies.RETENTION)
    settings = clean_settings(load_resources(None, overlays), policy, policies.load_promotion().model)
    run(CleanParams.model_validate({"seed": 0, **settings, "delete": delete}))
