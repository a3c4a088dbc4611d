"""``python -m pipelines promote``."""

import click


@click.command()
@click.option("--rollback", is_flag=True, help="Make the previous champion the champion again.")
@click.option("--unlock", is_flag=True, help="Remove the lock that a killed promotion left.")
def promote(rollback: bool, unlock: bool) -> None:
    """Compare the candidate with the champion under the policy of promotion.yaml; move the alias if it is better."""
    if rollback and unlock:
        raise click.UsageError("--rollback and --unlock exclude each other: run the command once with each")
    from pipelines.promotion import policy as policies
    from pipelines.promotion import promote as promotion
    from runtime.mlflow import get_version, remove_lock

    policy = policies.load()
    if unlock:
        click.echo(f"removed the lock of {remove_lock(policy.model)}")
        return
    if rollback:
        promotion.rollback(policy)
    else:
        decision = promotion.promote(policy)
        for name, value in decision.metrics.items():
            click.echo(f"{name}: {value:g}")
        for reason in decision.reasons:
            click.secho(f"not promoted: {reason}", fg="red")
        if decision.promoted:
            click.secho("promoted", fg="green")
    for alias in (policy.candidate, policy.champion, policy.previous):
        version = get_version(policy.model, alias)
        if version:
            click.echo(f"{alias}: version {version.number}")
