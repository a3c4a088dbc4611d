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
from runtime.mlflow.registry import Version, registered_versions

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


def log_promotion(candidate: Version, record: Mapping[str, Any], look: Mapping[str, Any] | None) -> None:
    """Log a decision (``record``, see docs/promotion.md) and the spent level ``look`` with the candidate."""
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


def log_online_decision(candidate: Version, champion: int | None, record: Mapping[str, Any]) -> None:
    """Log a decision on the searches of clients, with its ``verdict``: the tag ``promotion.online`` and a file."""
    tags = {"promotion.online": str(record["verdict"])}
    candidate.log_decision(tags, f"promotion/online_against_{champion}.json", record)


def log_rollback(vetoed: Version, champion: Version, reason: str) -> None:
    """Veto a champion that was replaced by the previous ``champion``."""
    text = f"rolled back to version {champion.number}" + (f": {reason}" if reason else "")
    tags = {"promotion": "rolled back", VETO: text[:MAX_TAG]}
    vetoed.log_decision(tags, "promotion/rollback.json", {"decision": text})


def withdraw(version: Version, reason: str) -> None:
    """Veto a version that was worse on searches of clients, keep its aliases; ``OSError`` if the lock is lost."""
    check_lock(version.model)
    text = f"withdrawn: {reason}"[:MAX_TAG]
    for tag, value in (("promotion", "withdrawn"), (VETO, text)):
        connect().set_model_version_tag(version.model, str(version.number), tag, value)
