"""``python -m pipelines promote``."""

from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--artifacts", type=FILE, default=Path("artifacts"), show_default=True, help="Artifacts of the candidate's run."
)
@click.option("--policy", "policy_file", type=FILE, help="Policy; by default pipelines/policies/promotion.yaml.")
@click.option("--version", "number", type=click.IntRange(min=1), help="Version to promote instead of the candidate.")
@click.option("--force", is_flag=True, help="Promote even if checks fail; needs --reason.")
@click.option("--rollback", is_flag=True, help="Make the previous champion the champion again; veto the present one.")
@click.option("--stale", is_flag=True, help="Roll back although the previous release has other images.")
@click.option("--reason", default="", help="Reason for --force or --rollback; it is recorded.")
@click.option("--unlock", is_flag=True, help="Remove the lock that a killed promotion left.")
def promote(
    artifacts: Path,
    policy_file: Path | None,
    number: int | None,
    force: bool,
    rollback: bool,
    stale: bool,
    reason: str,
    unlock: bool,
) -> None:
    """Compare the candidate with the champion under the policy of promotion.yaml; move the alias if it is better.

    Both models rank the test images that both evaluations share, from artifacts/dataset of the candidate's run.
    """
    if force + rollback + unlock > 1:
        raise click.UsageError("give only one of --force, --rollback and --unlock")
    if force and not reason:
        raise click.UsageError("--force needs --reason TEXT, which the registry records")
    from pipelines import policies
    from runtime.mlflow import alias_lock, get_version, remove_lock, roll_back
    from runtime.notices import report

    policy = policies.load_promotion(policy_file or policies.PROMOTION)
    if unlock:
        click.echo(f"removed the lock of {remove_lock(policy.model)}")
        return
    if rollback:
        with alias_lock(policy.model, policy.lock_timeout):
            aliases = {"champion": policy.champion, "previous": policy.previous}
            roll_back(policy.model, **aliases, reason=reason, stale=stale)
        restored = get_version(policy.model, policy.champion)
        name = f"version {restored.number if restored else '?'} of {policy.model}"
        report(f"bifocal promotion, {name} is the champion again: {reason or 'rolled back'}", "yellow")
    else:
        from components.cluster.promote.run import promote as decide
        from runtime.s3.remote_files import fetch_remote_files

        fetch_remote_files()
        decision = decide(policy, artifacts / "dataset", artifacts / "features", number=number, force=force * reason)
        _print(decision.record)
        for against in decision.reasons:
            click.secho(f"{'despite' if decision.promoted else 'not promoted'}: {against}", fg="red")
        if decision.promoted:
            click.secho("promoted", fg="green")
    for alias in (policy.candidate, policy.champion, policy.previous):
        version = get_version(policy.model, alias)
        if version:
            click.echo(f"{alias}: version {version.number}")


def _print(record: dict[str, Any]) -> None:
    for name, value in record["metrics"].items():
        click.echo(f"{name}: {value:g}")
    for note in record.get("notes", []):
        click.echo(f"note: {note}")
