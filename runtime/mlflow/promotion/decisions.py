"""Decisions on registered versions: their records, vetoes, spent levels, and the aliases that follow from them.

Tags of a version: ``promotion``, ``promotion.champion``, ``promotion.reasons`` and ``promotion.<metric>`` describe its
last decision, ``promotion.veto`` refuses it, and each ``promotion.look.<champion>.<test set>`` holds the level that a
comparison has spent. ``promotion.online`` has the decision on the searches of clients.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from runtime.mlflow.connection import connect
from runtime.mlflow.promotion.lock import check_lock
from runtime.mlflow.registry import RELEASE_TAG, Version, get_version, move_alias

VETO, LOOK = "promotion.veto", "promotion.look."
MAX_TAG = 4900
"""Characters of a tag's value; MLflow stores 5,000."""


def get_version_number(model: str, number: int) -> Version:
    """Return a version by its number.

    Raises:
        ValueError: there is no such version.
    """
    found = [entry for entry in _versions(model) if int(entry.version) == number]
    if not found:
        raise ValueError(f"{model} has no version {number}: MLflow's page of the model lists its versions")
    return Version(model, number, str(found[0].run_id))


def version_tags(version: Version) -> dict[str, str]:
    """Return the tags of a version."""
    return dict(connect().get_model_version(version.model, str(version.number)).tags)


def read_looks(model: str) -> list[dict[str, Any]]:
    """Return all comparisons of versions of ``model`` that spent a level: ``models``, ``level``, ``images``."""
    looks = []
    for version in _versions(model):
        for tag, value in version.tags.items():
            if tag.startswith(LOOK):
                look = json.loads(value)
                models = (str(version.version), tag.removeprefix(LOOK).partition(".")[0])
                looks.append({"models": models, "level": look["level"], "images": tuple(look["images"])})
    return looks


def log_promotion(candidate: Version, record: Mapping[str, Any], look: Mapping[str, Any] | None) -> None:
    """Log a decision with the candidate: tags, and ``promotion/against_<champion>.json`` of its run.

    Args:
        record: ``accepted``, ``promoted``, ``forced``, ``reasons``, ``metrics``,
            ``champion`` (with its ``version``) and more.
        look: spent level, with the ``images`` of the test set; None if none was spent.
    """
    opponent = str(record["champion"]["version"]) if record["champion"] else "none"
    answer = "accepted" if record["accepted"] else "no"
    if record["promoted"]:
        answer = "forced" if record["forced"] else "yes"
    tags = {"promotion": answer, "promotion.champion": opponent}
    tags["promotion.reasons"] = "; ".join(record["reasons"])[:MAX_TAG]
    # Tag names may not contain "@".
    metrics = {name: value for name, value in record["metrics"].items() if value is not None}
    tags |= {f"promotion.{name.replace('@', '_at_')}": f"{value:.4g}" for name, value in metrics.items()}
    if look and look["level"]:
        images = list(look["images"])
        test_set = sha256("".join(images).encode()).hexdigest()[:8]
        tags[f"{LOOK}{opponent}.{test_set}"] = json.dumps({"level": look["level"], "images": images})
    candidate.log_decision(tags, f"promotion/against_{opponent}.json", record)


def make_champion(candidate: Version, former: Version | None, *, champion: str, previous: str) -> None:
    """Move the alias ``champion`` to ``candidate`` and ``previous`` to the former champion; lift a veto.

    Raises:
        OSError: another process moved an alias at the same time.
    """
    if former:
        move_alias(candidate.model, previous, former.number)
    move_alias(candidate.model, champion, candidate.number)
    if VETO in version_tags(candidate):
        connect().delete_model_version_tag(candidate.model, str(candidate.number), VETO)


def roll_back(model: str, *, champion: str, previous: str, reason: str) -> tuple[Version, Version]:
    """Make the previous champion the champion again and veto the present one; return (new, vetoed) champion.

    Nothing has the alias ``previous`` afterwards: the champion before the previous one is not known.

    Raises:
        ValueError: no version has one of the aliases, or the champion has a release and the previous one has none.
        OSError: another process moved an alias at the same time.
    """
    former, vetoed = get_version(model, previous), get_version(model, champion)
    if former is None or vetoed is None:
        alias = champion if former else previous
        raise ValueError(f"no version of {model} has the alias {alias!r}: there is no promotion to roll back")
    if RELEASE_TAG in version_tags(vetoed) and RELEASE_TAG not in version_tags(former):
        raise ValueError(
            f"version {former.number} of {model} has no release, so a service could not load it: "
            "run python -m pipelines release for its run first"
        )
    move_alias(model, champion, former.number)
    move_alias(model, previous, None)
    text = f"rolled back to version {former.number}" + (f": {reason}" if reason else "")
    tags = {"promotion": "rolled back", VETO: text[:MAX_TAG]}
    vetoed.log_decision(tags, "promotion/rollback.json", {"decision": text})
    return former, vetoed


def withdraw(version: Version, reason: str) -> None:
    """Veto a version that was worse than the champion on the searches of clients; its aliases stay.

    Raises:
        OSError: this process lost the promotion lock.
    """
    check_lock(version.model)
    text = f"withdrawn: {reason}"[:MAX_TAG]
    for tag, value in (("promotion", "withdrawn"), (VETO, text)):
        connect().set_model_version_tag(version.model, str(version.number), tag, value)


def log_online_decision(candidate: Version, champion: int | None, record: Mapping[str, Any]) -> None:
    """Log a decision on the searches of clients: the tag ``promotion.online``, and a file of the run.

    Args:
        champion: number of the version that was compared with.
        record: its ``verdict``, and more.
    """
    tags = {"promotion.online": str(record["verdict"])}
    candidate.log_decision(tags, f"promotion/online_against_{champion}.json", record)


def _versions(model: str) -> list[Any]:
    client, token = connect(), None
    versions: list[Any] = []
    while True:
        page = client.search_model_versions(f"name = '{model}'", page_token=token)
        versions += page
        token = page.token
        if not token:
            return versions
