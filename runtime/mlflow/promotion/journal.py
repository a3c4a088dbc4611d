"""Decisions on registered versions as tags: ``promotion``, ``promotion.<detail>`` of the last decision,
``promotion.veto``, ``promotion.look.<champion>.<test set>`` with a spent level, ``promotion.online`` for client
searches.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from runtime.mlflow.connection import connect
from runtime.mlflow.promotion.lock import check_lock
from runtime.mlflow.registry import RegisteredVersion, registered_versions

VETO, LOOK = "promotion.veto", "promotion.look."
MAX_TAG = 4900
"""Characters of a tag's value; MLflow stores 5,000."""


def read_looks(model: str) -> list[dict[str, Any]]:
    """Return all comparisons of versions of ``model`` that spent a level: ``models``, ``level``, ``images``."""
    looks = []
    for version in registered_versions(model):
        for tag, value in version.tags.items():
            if tag.startswith(LOOK):
                look = json.loads(value)
                models = (str(version.version), tag.removeprefix(LOOK).partition(".")[0])
                looks.append({"models": models, "level": look["level"], "images": tuple(look["images"])})
    return looks


def log_promotion(candidate: RegisteredVersion, record: Mapping[str, Any], look: Mapping[str, Any] | None) -> str:
    """Log a decision (``record``, see docs/promotion.md) and the spent level ``look`` with the candidate; return the
    name of the record's file. ``make_champion`` logs that an accepted version was promoted.
    """
    opponent = str(record["champion"]["version"]) if record["champion"] else "none"
    tags = {"promotion": "accepted" if record["accepted"] else "no", "promotion.champion": opponent}
    tags["promotion.reasons"] = "; ".join(record["reasons"])[:MAX_TAG]
    # Tag names may not contain "@".
    metrics = {name: value for name, value in record["metrics"].items() if value is not None}
    tags |= {f"promotion.{name.replace('@', '_at_')}": f"{value:.4g}" for name, value in metrics.items()}
    if look and look["level"]:
        images = list(look["images"])
        test_set = sha256("".join(images).encode()).hexdigest()[:8]
        tags[f"{LOOK}{opponent}.{test_set}"] = json.dumps({"level": look["level"], "images": images})
    file = f"promotion/against_{opponent}.json"
    candidate.log_decision(tags, file, record)
    return file


def log_online_decision(candidate: RegisteredVersion, champion: int | None, record: Mapping[str, Any]) -> None:
    """Log a decision on the searches of clients, with its ``verdict``: the tag ``promotion.online`` and a file."""
    tags = {"promotion.online": str(record["verdict"])}
    candidate.log_decision(tags, f"promotion/online_against_{champion}.json", record)


def withdraw(version: RegisteredVersion, reason: str) -> None:
    """Veto a version that was worse on searches of clients, keep its aliases; ``OSError`` if the lock is lost."""
    check_lock(version.model)
    text = f"withdrawn: {reason}"[:MAX_TAG]
    for tag, value in (("promotion", "withdrawn"), (VETO, text)):
        connect().set_model_version_tag(version.model, str(version.number), tag, value)
