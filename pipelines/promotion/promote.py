"""Promotion: a candidate becomes the champion only if it is shown to be better, and the decision is kept either way."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipelines.promotion.candidate import gather
from pipelines.promotion.policy import Decision, Rules, decide
from runtime.mlflow import Version, get_version, move_alias, promotion_lock


def promote(rules: Rules) -> Decision:
    """Compare the candidate with the champion, log the decision, and move the aliases if it is yes.

    Raises:
        ValueError: there is no candidate.
        OSError: another promoter does not end, or moved an alias in spite of the lock.
    """
    with promotion_lock(rules.model, rules.wait):
        candidate = _version(rules, rules.candidate)
        champion = get_version(rules.model, rules.champion)
        if champion == candidate:
            return Decision([f"version {candidate.number} is the champion already"])
        decision = decide(rules, gather(candidate), gather(champion) if champion else None)
        _note(candidate, champion, decision, rules)
        if decision.promoted:
            if champion:
                move_alias(rules.model, rules.previous, champion.number)
            move_alias(rules.model, rules.champion, candidate.number)
    return decision


def rollback(rules: Rules) -> int:
    """Make the previous champion the champion again; returns its number. What was champion becomes ``previous``.

    Raises:
        ValueError: there is no previous champion.
    """
    with promotion_lock(rules.model, rules.wait):
        previous, champion = _version(rules, rules.previous), _version(rules, rules.champion)
        move_alias(rules.model, rules.champion, previous.number)
        move_alias(rules.model, rules.previous, champion.number)
        text = f"rolled back from {champion.number} to {previous.number}"
        champion.log_decision({"promotion": text}, "promotion/rollback.json", {"decision": text})
    return previous.number


def _note(candidate: Version, champion: Version | None, decision: Decision, rules: Rules) -> None:
    """Keep the decision with the candidate."""
    against = str(champion.number) if champion else "none"
    record: Mapping[str, Any] = {
        "promoted": decision.promoted,
        "candidate": candidate.number,
        "champion": against,
        **asdict(decision),
        "rules": rules.model_dump(),
    }
    tags = {"promotion": "yes" if decision.promoted else "no", "promotion.champion": against}
    tags["promotion.reasons"] = "; ".join(decision.reasons)
    tags |= {f"promotion.{name.replace('@', '_at_')}": f"{value:.4g}" for name, value in decision.figures.items()}
    candidate.log_decision(tags, f"promotion/against_{against}.json", record)


def _version(rules: Rules, alias: str) -> Version:
    found = get_version(rules.model, alias)
    if found is None:
        raise ValueError(f"no version of {rules.model} has the alias {alias!r}: run register_model, or promote first")
    return found
