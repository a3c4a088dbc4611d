"""Aliases of a registered model: moved by one process at a time, and read back after each move."""

from runtime.mlflow.connection import connect
from runtime.mlflow.promotion.journal import VETO, log_rollback
from runtime.mlflow.promotion.lock import check_lock
from runtime.mlflow.registry import RELEASE_TAG, Version, get_version, version_tags


def move_alias(model: str, alias: str, number: int | None) -> None:
    """Move ``alias`` to a version (None deletes it) and read it back; ``OSError`` on a conflict or a lost lock."""
    client = connect()
    check_lock(model)
    if number is None:
        client.delete_registered_model_alias(model, alias)
    else:
        client.set_registered_model_alias(model, alias, str(number))
    # Setting an alias has no compare-and-set: only reading it back shows a concurrent change.
    version = get_version(model, alias)
    if (version.number if version else None) != number:
        raise OSError(
            f"{model}@{alias} was set to {number} and now is {version}: another process moves it too; "
            "check the aliases in MLflow"
        )


def make_champion(candidate: Version, replaced: Version | None, *, champion: str, previous: str) -> None:
    """Move the alias ``champion`` to ``candidate`` and ``previous`` to the replaced champion; lift a veto."""
    if replaced:
        move_alias(candidate.model, previous, replaced.number)
    move_alias(candidate.model, champion, candidate.number)
    if VETO in version_tags(candidate):
        connect().delete_model_version_tag(candidate.model, str(candidate.number), VETO)


def roll_back(model: str, *, champion: str, previous: str, reason: str) -> None:
    """Make the previous champion the champion, veto the present one, and leave ``previous`` without a version."""
    restored, vetoed = get_version(model, previous), get_version(model, champion)
    if restored is None or vetoed is None:
        alias = champion if restored else previous
        raise ValueError(f"no version of {model} has the alias {alias!r}: there is no promotion to roll back")
    if RELEASE_TAG in version_tags(vetoed) and RELEASE_TAG not in version_tags(restored):
        raise ValueError(
            f"version {restored.number} of {model} has no release, so a service could not load it: "
            "run python -m pipelines release for its run first"
        )
    move_alias(model, champion, restored.number)
    move_alias(model, previous, None)
    log_rollback(vetoed, restored, reason)
