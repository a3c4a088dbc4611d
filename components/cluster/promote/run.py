"""Step promote: run. ``python -m pipelines promote`` calls the same function."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bifocal.datasets import read_dataset
from bifocal.evaluation.rank_tables import training_hashes
from bifocal.features import open_features
from bifocal.progress import log_line
from bifocal.promotion.acceptance import Assessment, assess
from bifocal.promotion.checks import Check
from bifocal.promotion.criteria import Criteria
from bifocal.promotion.exported_model import ExportedModel
from bifocal.promotion.looks import Look
from components.cluster.promote.spec import ACCEPTED, PromoteParams, PromotionPolicy
from runtime.artifacts import artifact_hash, write_json
from runtime.mlflow import (
    RELEASE_TAG,
    VETO,
    Version,
    get_version,
    get_version_number,
    log_promotion,
    make_champion,
    promotion_lock,
    read_looks,
    version_tags,
)


@dataclass(frozen=True)
class Decision:
    """Whether the candidate became the champion.

    Attributes:
        accepted: whether the version meets the policy, or its promotion is forced.
        promoted: whether the alias was moved.
        reasons: reasons against the promotion; a forced promotion may have some.
        record: all checks and metrics, the test set and the policy; see the README of the step.
    """

    accepted: bool
    promoted: bool
    reasons: list[str]
    record: dict[str, Any]


def run(params: PromoteParams, *, dataset: Path, features: Path, registration: Path, promotion: Path) -> dict[str, Any]:
    """Decide on the version that ``registration`` names and write ``decision.json``; a refusal is no error."""
    registered = json.loads((registration / "registration.json").read_text())
    policy = params.policy.model_copy(update={"model": registered["model"]})
    decision = promote(policy, dataset, features, number=registered["version"], decide_only=params.decide_only)
    write_json(promotion / "decision.json", decision.record)
    for reason in decision.reasons:
        log_line(f"not promoted: {reason}")
    accepted = json.dumps(decision.accepted)
    return {"promoted": float(decision.promoted), ACCEPTED: accepted, **decision.record["metrics"]}


def promote(
    policy: PromotionPolicy,
    dataset: Path,
    features: Path,
    *,
    number: int | None = None,
    force: str = "",
    decide_only: bool = False,
) -> Decision:
    """Compare the candidate with the champion, log the decision, and move the aliases if it is promoted.

    Args:
        dataset: artifact that the candidate was trained on; its test split may have changed since.
        features: artifact that the candidate was trained on, read only if a model has no graph from pixels to vectors.
        number: version to promote; None for the version that has the candidate's alias.
        force: why the candidate is promoted despite all reasons against it; empty to heed them.
        decide_only: log the decision, and move no alias. The version may have no release yet.

    Raises:
        ValueError: there is no candidate, or the artifacts are not its own.
        OSError: another promotion holds the lock for too long, or moved an alias despite the lock.
    """
    with promotion_lock(policy.model, policy.lock_timeout):
        candidate = get_version_number(policy.model, number) if number else get_version(policy.model, policy.candidate)
        if candidate is None:
            raise ValueError(
                f"no version of {policy.model} has the alias {policy.candidate!r}: run register_model first"
            )
        champion = get_version(policy.model, policy.champion)
        if champion == candidate:
            reason = f"version {candidate.number} already is the champion"
            return Decision(False, False, [reason], {"promoted": False, "reasons": [reason], "metrics": {}})
        tags = version_tags(candidate)
        checks, result = registry_checks(tags, policy.allow_dirty), Assessment()
        if champion and not decide_only:
            checks.append(release_check(candidate, tags, version_tags(champion)))
        if force or all(check.passed for check in checks):
            result = _assess(policy, candidate, champion, tags, dataset, features)
        result.checks[:0] = checks
        record = _record(policy, candidate, champion, tags, result, force, decide_only)
        log_promotion(candidate, record, asdict(result.look) if result.look else None)
        if record["promoted"]:
            make_champion(candidate, champion, champion=policy.champion, previous=policy.previous)
    return Decision(record["accepted"], record["promoted"], record["reasons"], record)


def registry_checks(tags: Mapping[str, str], allow_dirty: bool) -> list[Check]:
    """Return the checks that need no evaluation: of vetoes, and of the commit of the code."""
    veto, commit = tags.get(VETO, ""), tags.get("git_commit", "unknown")
    no_commit = not allow_dirty and (commit == "unknown" or commit.endswith("-dirty"))
    return [
        Check("veto", f"the version was {veto}; only a forced promotion brings it back" if veto else ""),
        Check("commit", f"no commit holds the code of the model ({commit}): commit, train again" if no_commit else ""),
    ]


def release_check(candidate: Version, tags: Mapping[str, str], champion: Mapping[str, str]) -> Check:
    """Return the check that a champion with a release is replaced by another: a service could not load the model alone.

    Args:
        tags: of the candidate.
        champion: tags of the champion.
    """
    missing = RELEASE_TAG in champion and RELEASE_TAG not in tags
    reason = f"version {candidate.number} has no release, the champion has one: run python -m pipelines release"
    return Check("release", reason if missing else "")


def _assess(
    policy: PromotionPolicy, candidate: Version, champion: Version | None, tags: Mapping[str, str], *artifacts: Path
) -> Assessment:
    tables, features = read_dataset(artifacts[0]), artifacts[1]
    models: list[ExportedModel] = []
    with TemporaryDirectory() as folder:
        for version in filter(None, (candidate, champion)):
            try:
                models.append(ExportedModel.read(*version.download(Path(folder) / str(version.number))))
            except ValueError as error:
                return Assessment([Check("files", f"version {version.number} cannot be evaluated: {error}")])
        # The test images may be newer than the model: what it was trained on must be known to find leakage.
        if not models[0].trained_on or models[0].trained_on != training_hashes(tables):
            _check_artifact("dataset", artifacts[0], tags)
        store = None
        if not all(model.reads_images for model in models):
            _check_artifact("features", features, tags)
            store = open_features(features, tables)
        return assess(
            tables,
            models,
            [None if model.reads_images else store for model in models],
            Criteria(**{field.name: getattr(policy, field.name) for field in fields(Criteria)}),
            names=(str(candidate.number), str(champion.number if champion else "")),
            looks=[Look(**look) for look in read_looks(policy.model)],
        )


def _check_artifact(name: str, path: Path, tags: Mapping[str, str]) -> None:
    actual, expected = artifact_hash(path), tags.get(f"hash.{name}", "none")
    if actual != expected:
        raise ValueError(
            f"{path} has the hash {actual[:12]}, the candidate's {name} has {expected[:12]}: give the artifacts that "
            "the candidate was trained on"
        )


def _record(
    policy: PromotionPolicy,
    candidate: Version,
    champion: Version | None,
    tags: Mapping[str, str],
    result: Assessment,
    force: str,
    decide_only: bool,
) -> dict[str, Any]:
    """Return the decision record, which ``docs/promotion.md`` describes."""
    accepted = bool(force) or not result.reasons
    return {
        "accepted": accepted,
        "promoted": accepted and not decide_only,
        "forced": force,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "candidate": {"version": candidate.number, "run_id": candidate.run_id, "git_commit": tags.get("git_commit")}
        | {name: value for name, value in tags.items() if name.startswith("hash.")},
        "champion": {"version": champion.number, "run_id": champion.run_id} if champion else None,
        **result.record(),
        "policy": policy.model_dump(mode="json"),
    }
