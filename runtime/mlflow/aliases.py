"""Aliases of a registered model: moved by one process at a time, and read back after each move;
decisions as tags.

A promotion and a rollback move two aliases and set tags. Their plan is a parameter of the lock's
run, written first, and another one ends it: the next holder of ``alias_lock`` finishes the plan of
a process that was killed in between. Plans and looks in that run decide, not the tags, which others
can write; a veto is in a plan or a tag.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import click
import mlflow

from bifocal.progress import printable
from runtime.mlflow.connection import connect, mlflow_errors_as_oserror
from runtime.mlflow.lock import check_lock, log_record, promotion_lock, read_records, remove_lock
from runtime.mlflow.registry import (
    RELEASE_TAG,
    RegisteredVersion,
    get_version,
    get_version_number,
    recorded_tags,
    registered_versions,
    version_tags,
)

VETO, PLAN_TAG = "promotion.veto", "promotion.plan"
"""Tags: of decisions, besides ``promotion``, ``promotion.champion`` and ``promotion.reasons``, and
``promotion.online`` for client searches; and a tag that Bifocal does not write any more."""
MAX_TAG = 4900
"""Characters of a tag's value; MLflow stores 5,000."""
PLAN, END, LOOK = "plan", "end", "look"
"""Records of plans, of their ends by the number of the plan, and of spent levels."""
DONE, DROPPED = "done", "dropped"
MAX_REASON = 2000
"""Characters of a reason; MLflow stores 6,000 bytes of a parameter."""


@dataclass(frozen=True)
class Plan:
    """Moves of aliases, in this order, and the decision to log with a version after them.

    Attributes:
        moves: version before and after the move, by alias; None for no version.
        version: number of the version with the decision.
        tags: of the version; None removes a tag.
        file: of the version's run; it gets the veto, or that the version was promoted.
    """

    moves: Mapping[str, tuple[int | None, int | None]]
    version: int
    tags: Mapping[str, str | None]
    file: str

    @classmethod
    def read(cls, record: str) -> "Plan":
        """Return a recorded plan; one without a version, which is not possible, for a damaged
        record."""
        try:
            return cls(**json.loads(record))
        except (TypeError, ValueError):
            return cls({}, 0, {}, "")

    def execute(self, model: str) -> None:
        """Move the aliases that have not moved, and log the decision."""
        client, version = connect(), get_version_number(model, self.version)
        for alias, (_, after) in self.moves.items():
            if _number(model, alias) != after:
                move_alias(model, alias, after)
        logged = version.has_file(self.file)
        record = mlflow.artifacts.load_dict(f"runs:/{version.run_id}/{self.file}") if logged else {}
        kept = {name: value for name, value in self.tags.items() if value is not None}
        entry = {"decision": kept[VETO]} if VETO in kept else {"promoted": True}
        version.log_decision(kept, self.file, {**record, **entry})
        for name in version_tags(version).keys() & (self.tags.keys() - kept.keys()):
            client.delete_model_version_tag(model, str(version.number), name)

    def possible(self, model: str) -> bool:
        """Whether no alias was moved by another process or a user since the plan was made, and no
        version deleted."""
        present = {int(version.version) for version in registered_versions(model)}
        unmoved = all(_number(model, alias) in numbers for alias, numbers in self.moves.items())
        return (
            unmoved
            and {self.version, *(after for _, after in self.moves.values() if after)} <= present
        )


@contextmanager
def alias_lock(model: str, timeout: float) -> Iterator[None]:
    """Hold the promotion lock of ``model``, after the plan of a killed process is finished."""
    with promotion_lock(model, timeout):
        if _has_plan_tag(model):
            text = f"is refused: a plan is a parameter of the run 'promotions of {model}'"
            command = "'python -m pipelines promote --unlock' deletes the tag"
            click.echo(f"warning: the tag {PLAN_TAG} of {model} {text}; {command}", err=True)
        _finish_plan(model)
        yield


def move_alias(model: str, alias: str, number: int | None) -> None:
    """Move ``alias`` to a version (None deletes it) and read it back; ``OSError`` on a conflict or
    a lost lock."""
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
            f"{model}@{alias} was set to {number} and now is {found}: another process moves it "
            "too; check the aliases in MLflow"
        )


def make_champion(
    candidate: RegisteredVersion, *, champion: str, previous: str, answer: str, file: str
) -> None:
    """Move ``champion`` to ``candidate`` and ``previous`` to the replaced champion; lift a veto and
    log ``answer``.

    ``file`` is the record of the decision.
    """
    replaced = _number(candidate.model, champion)
    moves = {champion: (replaced, candidate.number)}
    if replaced is not None:
        moves[previous] = (_number(candidate.model, previous), replaced)
    tags = {"promotion": answer, VETO: None}
    _start(candidate.model, Plan(moves, candidate.number, tags, file))


def roll_back(
    model: str, *, champion: str, previous: str, reason: str, stale: bool = False
) -> None:
    """Make the previous champion the champion, veto the present one, and leave ``previous`` without
    a version.

    Raises:
        ValueError: there is no such version, or, unless ``stale``, its release has other images
            than the champion's.
    """
    from runtime.mlflow.releases import released_items  # imports the search

    restored, vetoed = get_version(model, previous), get_version(model, champion)
    if restored is None or vetoed is None or restored == vetoed:
        alias = champion if vetoed is None else previous
        state = (
            f"the champion, version {vetoed.number},"
            if vetoed and restored == vetoed
            else "no version"
        )
        raise ValueError(
            f"{state} of {model} has the alias {alias!r}: there is no promotion to roll back"
        )
    if RELEASE_TAG in version_tags(vetoed) and RELEASE_TAG not in version_tags(restored):
        raise ValueError(
            f"version {restored.number} of {model} has no release, so a service could not load it: "
            "run python -m pipelines release for its run first"
        )
    if not stale and RELEASE_TAG in version_tags(vetoed):
        try:
            now, then = released_items(vetoed), released_items(restored)
        except FileNotFoundError as error:
            raise ValueError(
                f"{error}; --stale rolls back without a comparison of the images"
            ) from error
        if now != then:
            raise ValueError(
                f"the release of version {restored.number} lacks {len(now - then)} images of "
                f"version {vetoed.number}, and has {len(then - now)} others: run the flow "
                "refresh-previous first, or give --stale"
            )
    text = f"rolled back to version {restored.number}" + (
        f": {printable(reason)[:MAX_REASON]}" if reason else ""
    )
    moves = {champion: (vetoed.number, restored.number), previous: (restored.number, None)}
    tags = {"promotion": "rolled back", VETO: text}
    _start(model, Plan(moves, vetoed.number, tags, "promotion/rollback.json"))


def _start(model: str, plan: Plan) -> None:
    check_lock(model)
    log_record(model, PLAN, json.dumps(asdict(plan), ensure_ascii=False))
    plan.execute(model)
    log_record(model, END, DONE, max(read_records(model, PLAN), default=None))


def _finish_plan(model: str) -> None:
    for number, (plan, end) in _plans(model).items():
        if not end and plan.possible(model):
            click.echo(
                f"finishing the moves of a killed process: {json.dumps(plan.moves)}", err=True
            )
            plan.execute(model)
            log_record(model, END, DONE, number)
        elif not end:
            text = "but aliases moved since, or versions were deleted: nothing is done"
            click.echo(f"a killed process wanted {json.dumps(plan.moves)}, {text}", err=True)
            log_record(model, END, DROPPED, number)


def _plans(model: str) -> dict[int, tuple[Plan, str]]:
    """Return the recorded plans with their ends by number; "" for the plan of a killed process."""
    ends = read_records(model, END)
    return {
        number: (Plan.read(text), ends.get(number, ""))
        for number, text in read_records(model, PLAN).items()
    }


def deciding_tags(version: RegisteredVersion) -> dict[str, str]:
    """Return the tags of a version with records in place of the tags that decide; a veto is a
    record or a tag."""
    with mlflow_errors_as_oserror():
        plans = _plans(version.model).values()
    own = [plan.tags for plan, end in plans if plan.version == version.number and end != DROPPED]
    vetoes = [tags[VETO] for tags in own if VETO in tags]
    return recorded_tags(version) | ({VETO: vetoes[-1]} if vetoes and vetoes[-1] else {})


def _has_plan_tag(model: str) -> bool:
    return any(
        PLAN_TAG in found.tags for found in connect().search_registered_models(f"name = '{model}'")
    )


def unlock(model: str) -> str:
    """Delete the tag of a plan, which a user wrote, or else remove the lock; return what was
    removed."""
    with mlflow_errors_as_oserror():
        if _has_plan_tag(model):
            connect().delete_registered_model_tag(model, PLAN_TAG)
            return f"the tag {PLAN_TAG}"
    return f"the lock of {remove_lock(model)}"


def _number(model: str, alias: str) -> int | None:
    version = get_version(model, alias)
    return version.number if version else None


def read_looks(model: str) -> list[dict[str, Any]]:
    """Return all comparisons of versions of ``model`` that spent a level: ``models``, ``level``,
    ``images``."""
    looks = map(json.loads, read_records(model, LOOK).values())
    return [
        {**look, "models": tuple(look["models"]), "images": tuple(look["images"])} for look in looks
    ]


def log_promotion(
    candidate: RegisteredVersion, record: Mapping[str, Any], look: Mapping[str, Any] | None
) -> str:
    """Log a decision (``record``, see docs/promotion.md) and the spent level ``look`` with the
    candidate; return the name of the record's file. ``make_champion`` logs that an accepted version
    was promoted.
    """
    opponent = str(record["champion"]["version"]) if record["champion"] else "none"
    tags = {"promotion": "accepted" if record["accepted"] else "no", "promotion.champion": opponent}
    tags["promotion.reasons"] = "; ".join(record["reasons"])[:MAX_TAG]
    if look and look["level"] and look not in read_looks(candidate.model):
        log_record(candidate.model, LOOK, json.dumps(look))
    file = f"promotion/against_{opponent}.json"
    candidate.log_decision(tags, file, record)
    return file


def log_online_decision(
    candidate: RegisteredVersion, champion: int | None, record: Mapping[str, Any]
) -> None:
    """Log a decision on the searches of clients, with its ``verdict``: the tag ``promotion.online``
    and a file."""
    tags = {"promotion.online": str(record["verdict"])}
    candidate.log_decision(tags, f"promotion/online_against_{champion}.json", record)


def withdraw(version: RegisteredVersion, reason: str) -> None:
    """Veto a version that was worse on searches of clients, keep its aliases; ``OSError`` if the
    lock is lost."""
    tags = {"promotion": "withdrawn", VETO: f"withdrawn: {printable(reason)[:MAX_REASON]}"}
    _start(version.model, Plan({}, version.number, tags, "promotion/withdrawal.json"))
