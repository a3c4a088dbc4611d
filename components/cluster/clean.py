"""Step clean: run. ``python -m pipelines clean`` calls the same function."""

from datetime import UTC, datetime

from bifocal.progress import log_line
from components.cluster.steps import CleanParams
from runtime.mlflow.retention import delete_previous_files, needed_by_versions, previous_files
from runtime.retention import artifact_units, checkpoint_units, delete_unit, unneeded


def run(params: CleanParams) -> dict[str, float]:
    """List what nothing needs, or delete it; return the bytes of both."""
    policy, now, found = params.policy, datetime.now(UTC), {"listed": 0, "deleted": 0}
    act = "deleted" if params.delete else "listed"
    needed: set[str] = set()
    if params.model is not None:
        newest, days = policy.releases.versions, policy.releases.days
        needed = needed_by_versions(params.model, newest)
        previous = [(files, files.size()) for files in previous_files(params.model, newest)]
        if params.delete:
            delete_previous_files(params.model, newest, now, days)
        for files, size in previous:
            due = files.is_due(now, days)
            since = "now" if files.since is None else f"{files.since:%Y-%m-%d}"
            found[act if due else "listed"] += size
            log_line(
                f"{act if due else 'later'}: {files}, {_megabytes(size)}, unneeded since {since}"
            )
    units = [unit for address in params.artifacts for unit in artifact_units(address)]
    old = unneeded(units, needed, now, policy.artifacts.days, policy.artifacts.newest)
    checkpoints = [unit for address in params.checkpoints for unit in checkpoint_units(address)]
    old += unneeded(checkpoints, (), now, policy.checkpoints.days, 1)
    for unit in old:
        if params.delete:
            delete_unit(unit)
        found[act] += unit.size
        log_line(
            f"{act}: {unit.address}, {_megabytes(unit.size)}, last changed {unit.changed:%Y-%m-%d}"
        )
    verb = "deleted" if params.delete else "to delete"
    log_line(
        f"{_megabytes(found[act])} {verb}"
        + ("" if params.delete else ": nothing was deleted; see --delete")
    )
    return {name: float(size) for name, size in found.items()}


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
