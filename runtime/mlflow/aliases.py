"""Aliases of a registered model: moved by one process at a time, and read back after each move; decisions as tags.

A promotion and a rollback move two aliases and set tags. The plan is a tag of the registered model, written first and
deleted last: the next holder of ``alias_lock`` finishes the plan of a process that was killed in between.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import click
import mlflow

from runtime.mlflow.connection import allowed, connect
from runtime.mlflow.lock import check_lock, promotion_lock
from runtime.mlflow.registry import (
    RELEASE_TAG,
    RegisteredVersion,
    get_version,
    get_version_number,
    registered_versions,
    version_tags,
)

VETO, LOOK = "promotion.veto", "promotion.look."
"""Tags of decisions, besides ``promotion``, ``promotion.<detail>`` of the last one, and ``promotion.online`` for client
searches: ``promotion.look.<champion>.<test set>`` has a spent level."""
MAX_TAG = 4900
"""Characters of a tag's value; MLflow stores 5,000."""
PLAN = "promotion.plan"
MAX_REASON = 2000
"""Characters of a reason, which a plan has twice."""


@dataclass(frozen=True)
class Plan:
    """Moves of aliases, in this order, and the decision to log with a version after them.

    Attributes:
        moves: version before and after the move, by alias; None for no version.
        version: number of the version with the decision.
        tags: of the version; None removes a tag.
        file: of the version's run; it gets the ``entries``.
    """

    moves: Mapping[str, tuple[int | None, int | None]]
    version: int
    tags: Mapping[str, str | None]
    file: str
    entries: Mapping[str, str | bool]

    def execute(self, model: str) -> None:
        """Move the aliases that have not moved, log the decision, and delete the plan."""
        client, version = connect(), get_version_number(model, self.version)
        for alias, (_, after) in self.moves.items():
            if _number(model, alias) != after:
                move_alias(model, alias, after)
        logged = version.has_file(self.file)
        record = mlflow.artifacts.load_dict(f"runs:/{version.run_id}/{self.file}") if logged else {}
        kept = {name: value for name, value in self.tags.items() if value is not None}
        version.log_decision(kept, self.file, {**record, **self.entries})
        for name in version_tags(version).keys() & (self.tags.keys() - kept.keys()):
            client.delete_model_version_tag(model, str(version.number), name)
        client.delete_registered_model_tag(model, PLAN)

    def possible(self, model: str) -> bool:
        """Whether no alias was moved by another process or a user since the plan was made."""
        return all(_number(model, alias) in numbers for alias, numbers in self.moves.items())


@contextmanager
def alias_lock(model: str, timeout: float) -> Iterator[None]:
    """Hold the promotion lock of ``model``, after the plan of a killed process is finished."""
    with promotion_lock(model, timeout):
        _finish_plan(model)
        yield


def move_alias(model: str, alias: str, number: int | None) -> None:
    """Move ``alias`` to a version (None deletes it) and read it back; ``OSError`` on a conflict or a lost lock."""
    client = connect()
    check_lock(model)
    if number is None:
        client.delete_registered_model_alias(model, alias)
    else:
        client.set_registered_model_alias(model, alias, str(number))
    # Setting an alias has no compare-and-set: only reading it back shows a concurrent change.
    found = _number(model, alias)
    if found != number:
        raise OSError(
            f"{model}@{alias} was set to {number} and now is {found}: another process moves it too; "
            "check the aliases in MLflow"
        )


def make_champion(candidate: RegisteredVersion, *, champion: str, previous: str, answer: str, file: str) -> None:
    """Move ``champion`` to ``candidate`` and ``previous`` to the replaced champion; lift a veto and log ``answer``.

    ``file`` is the record of the decision.
    """
    replaced = _number(candidate.model, champion)
    moves = {champion: (replaced, candidate.number)}
    if replaced is not None:
        moves[previous] = (_number(candidate.model, previous), replaced)
    tags = {"promotion": answer, VETO: None}
    _start(candidate.model, Plan(moves, candidate.number, tags, file, {"promoted": True}))


def roll_back(model: str, *, champion: str, previous: str, reason: str, stale: bool = False) -> None:
    """Make the previous champion the champion, veto the present one, and leave ``previous`` without a version.

    Raises:
        ValueError: there is no such version, or, unless ``stale``, its release has other images than the champion's.
    """
    from runtime.mlflow.releases import released_items  # imports the search

    restored, vetoed = get_version(model, previous), get_version(model, champion)
    if restored is None or vetoed is None or restored == vetoed:
        alias = champion if vetoed is None else previous
        state = f"the champion, version {vetoed.number}," if vetoed and restored == vetoed else "no version"
        raise ValueError(f"{state} of {model} has the alias {alias!r}: there is no promotion to roll back")
    if RELEASE_TAG in version_tags(vetoed) and RELEASE_TAG not in version_tags(restored):
        raise ValueError(
            f"version {restored.number} of {model} has no release, so a service could not load it: "
            "run python -m pipelines release for its run first"
        )
    if not stale and RELEASE_TAG in version_tags(vetoed):
        try:
            now, then = released_items(vetoed), released_items(restored)
        except FileNotFoundError as error:
            raise ValueError(f"{error}; --stale rolls back without a comparison of the images") from error
        if now != then:
            raise ValueError(
                f"the release of version {restored.number} lacks {len(now - then)} images of version {vetoed.number}, "
                f"and has {len(then - now)} others: run the flow refresh-previous first, or give --stale"
            )
    text = f"rolled back to version {restored.number}" + (f": {reason[:MAX_REASON]}" if reason else "")
    moves = {champion: (vetoed.number, restored.number), previous: (restored.number, None)}
    tags = {"promotion": "rolled back", VETO: text}
    _start(model, Plan(moves, vetoed.number, tags, "promotion/rollback.json", {"decision": text}))


def _start(model: str, plan: Plan) -> None:
    check_lock(model)
    connect().set_registered_model_tag(model, PLAN, json.dumps(asdict(plan)))
    plan.execute(model)


def _finish_plan(model: str) -> None:
    client = connect()
    if not client.search_registered_models(f"name = '{model}'"):
        return
    text = client.get_registered_model(model).tags.get(PLAN)
    if text is None:
        return
    plan = Plan(**json.loads(text))
    if plan.possible(model):
        click.echo(f"finishing the moves of a killed process: {json.dumps(plan.moves)}", err=True)
        plan.execute(model)
    else:
        text = f"a killed process wanted {json.dumps(plan.moves)}, but aliases moved since: nothing is done"
        click.echo(text, err=True)
        client.delete_registered_model_tag(model, PLAN)


def _number(model: str, alias: str) -> int | None:
    version = get_version(model, alias)
    return version.number if version else None


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
    metrics = {name: value for name, value in record["metrics"].items() if value is not None}
    tags |= {allowed(f"promotion.{name}"): f"{value:.4g}" for name, value in metrics.items()}
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
