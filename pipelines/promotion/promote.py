"""Promotion of the candidate, and its rollback. Every decision is logged with the version."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pipelines.promotion.candidate import collect
from pipelines.promotion.policy import Decision, PromotionPolicy, decide
from runtime.mlflow import Version, get_version, move_alias, promotion_lock


def promote(policy: PromotionPolicy) -> Decision:
    """Compare the candidate with the champion, log the decision, and move the aliases if it is promoted.

    Raises:
        ValueError: there is no candidate.
        OSError: another promotion holds the lock for too long, or moved an alias despite the lock.
    """
    with promotion_lock(policy.model, policy.lock_timeout):
        candidate = _version(policy, policy.candidate)
        champion = get_version(policy.model, policy.champion)
        if champion == candidate:
            return Decision([f"version {candidate.number} already is the champion"])
        decision = decide(policy, collect(candidate), collect(champion) if champion else None)
        _log(candidate, champion, decision, policy)
        if decision.promoted:
            if champion:
                move_alias(policy.model, policy.previous, champion.number)
            move_alias(policy.model, policy.champion, candidate.number)
    return decision


def rollback(policy: PromotionPolicy) -> int:
    """Swap the champion and the previous champion; return the number of the new champion.

    Raises:
        ValueError: there is no previous champion.
    """
    with promotion_lock(policy.model, policy.lock_timeout):
        previous, champion = _version(policy, policy.previous), _version(policy, policy.champion)
        move_alias(policy.model, policy.champion, previous.number)
        move_alias(policy.model, policy.previous, champion.number)
        text = f"rolled back from {champion.number} to {previous.number}"
        champion.log_decision({"promotion": text}, "promotion/rollback.json", {"decision": text})
    return previous.number


def _log(candidate: Version, champion: Version | None, decision: Decision, policy: PromotionPolicy) -> None:
    """Log the decision with the candidate, as tags and as JSON."""
    opponent = str(champion.number) if champion else "none"
    record: Mapping[str, Any] = {
        "promoted": decision.promoted,
        "candidate": candidate.number,
        "champion": opponent,
        **asdict(decision),
        "policy": policy.model_dump(),
    }
    tags = {"promotion": "yes" if decision.promoted else "no", "promotion.champion": opponent}
    tags["promotion.reasons"] = "; ".join(decision.reasons)
    # Tag names may not contain "@".
    tags |= {f"promotion.{name.replace('@', '_at_')}": f"{value:.4g}" for name, value in decision.metrics.items()}
    candidate.log_decision(tags, f"promotion/against_{opponent}.json", record)


def _version(policy: PromotionPolicy, alias: str) -> Version:
    version = get_version(policy.model, alias)
    if version is None:
        raise ValueError(f"no version of {policy.model} has the alias {alias!r}: run register_model, or promote first")
    return version
