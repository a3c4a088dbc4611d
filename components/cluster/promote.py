"""Step promote: run. ``python -m pipelines promote`` calls the same function."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bifocal.datasets import read_dataset
from bifocal.durable import write_json
from bifocal.evaluation.rank_tables import training_hashes
from bifocal.features import open_features
from bifocal.onnx.files import read_json
from bifocal.progress import log_line
from bifocal.promotion.acceptance import Assessment, Criteria, assess
from bifocal.promotion.checks import Check
from bifocal.promotion.exported_model import ExportedModel
from bifocal.promotion.looks import Look
from components.cluster.policies import PromotionPolicy
from components.cluster.steps import ACCEPTED, PromoteParams
from runtime.artifacts import artifact_hash
from runtime.mlflow import (
    alias_lock,
    get_version,
    get_version_number,
    log_promotion,
    make_champion,
    version_tags,
)
from runtime.mlflow.aliases import VETO, deciding_tags, read_looks
from runtime.mlflow.registry import RELEASE_TAG, RegisteredVersion
from runtime.notices import report
from runtime.parameters import options_of


@dataclass(frozen=True)
class PromotionDecision:
    """Whether the candidate became the champion; ``docs/promotion.md`` describes the record."""

    accepted: bool
    promoted: bool
    reasons: list[str]
    record: dict[str, Any]


def run(
    params: PromoteParams, *, dataset: Path, features: Path, registration: Path, promotion: Path
) -> dict[str, Any]:
    """Decide on the version that ``registration`` names and write ``decision.json``; a refusal is
    not an error."""
    registered = read_json(registration / "registration.json")
    policy = params.policy.model_copy(update={"model": registered["model"]})
    number, decide_only, policy_file = registered["version"], params.decide_only, params.policy_file
    decision = promote(
        policy, dataset, features, number=number, decide_only=decide_only, policy_file=policy_file
    )
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
    policy_file: str = "promotion.yaml",
) -> PromotionDecision:
    """Compare the candidate with the champion, log the decision, and move the aliases if it is
    promoted.

    ``number`` chooses a version without the candidate's alias, and ``force`` is why it is promoted
    despite all reasons against it. With ``decide_only``, no alias moves, and the version may have
    no release yet. Reasons name ``policy_file`` with a value that would accept the version.
    """
    with alias_lock(policy.model, policy.lock_timeout):
        candidate = (
            get_version_number(policy.model, number)
            if number
            else get_version(policy.model, policy.candidate)
        )
        if candidate is None:
            raise ValueError(
                f"no version of {policy.model} has the alias {policy.candidate!r}: run "
                "register_model first"
            )
        candidate.check()
        champion = get_version(policy.model, policy.champion)
        if champion == candidate:
            reason = f"version {candidate.number} already is the champion"
            return PromotionDecision(
                False, False, [reason], {"promoted": False, "reasons": [reason], "metrics": {}}
            )
        tags = deciding_tags(candidate)
        checks, result = registry_checks(tags, policy.allow_dirty), Assessment()
        if champion and not decide_only:
            checks.append(release_check(candidate, tags, version_tags(champion)))
        if force or all(check.passed for check in checks):
            criteria = options_of(Criteria, policy)
            result = assess_versions(candidate, champion, tags, criteria, dataset, features)
        result.checks[:0] = checks
        accepted = bool(force) or not result.reasons
        record = {
            "accepted": accepted,
            "promoted": False,
            "forced": force,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "candidate": {
                "version": candidate.number,
                "run_id": candidate.run_id,
                "git_commit": tags.get("git_commit"),
            }
            | {name: value for name, value in tags.items() if name.startswith("hash.")},
            "champion": {"version": champion.number, "run_id": champion.run_id}
            if champion
            else None,
            **result.record(policy_file),
            "policy": policy.model_dump(mode="json"),
        }
        file = log_promotion(candidate, record, asdict(result.look) if result.look else None)
        if accepted and not decide_only:
            answer, aliases = (
                "forced" if force else "yes",
                {"champion": policy.champion, "previous": policy.previous},
            )
            make_champion(candidate, **aliases, answer=answer, file=file)
            record["promoted"] = True
    decision = PromotionDecision(accepted, bool(record["promoted"]), record["reasons"], record)
    if decision.promoted or not accepted:
        report(_notice(policy, decision), "green" if decision.promoted else "red")
    return decision


def _notice(policy: PromotionPolicy, decision: PromotionDecision) -> str:
    """Return one sentence on a promoted or refused version."""
    candidate, champion = decision.record["candidate"], decision.record["champion"]
    verdict = "is the champion now" if decision.promoted else "was not promoted"
    previous = f", before it version {champion['version']}" if champion else ", the first one"
    reasons = f": {'; '.join(decision.reasons)}" if decision.reasons else ""
    forced = f" (forced: {decision.record['forced']})" if decision.record["forced"] else ""
    name = f"bifocal promotion, version {candidate['version']} of {policy.model}"
    return f"{name} {verdict}{previous if decision.promoted else ''}{forced}{reasons}"


def registry_checks(tags: Mapping[str, str], allow_dirty: bool) -> list[Check]:
    """Return the checks that need no evaluation: vetoes, and the commit of the code."""
    veto, commit = tags.get(VETO, ""), tags.get("git_commit", "unknown")
    no_commit = not allow_dirty and (commit == "unknown" or commit.endswith("-dirty"))
    return [
        Check(
            "veto",
            f"the version was {veto}; only a forced promotion brings it back" if veto else "",
        ),
        Check(
            "commit",
            f"no commit holds the code of the model ({commit}): commit, train again"
            if no_commit
            else "",
            setting="allow_dirty: true",
            cost="nobody can read the code of this model later",
        ),
    ]


def release_check(
    candidate: RegisteredVersion, tags: Mapping[str, str], champion: Mapping[str, str]
) -> Check:
    """Check that the candidate has a release if the champion has one: a service cannot load a model
    without it."""
    missing = RELEASE_TAG in champion and RELEASE_TAG not in tags
    reason = (
        f"version {candidate.number} has no release, the champion has one: the flow retrain "
        "embeds the images of an accepted version; python -m pipelines release adds those of a run"
    )
    return Check("release", reason if missing else "")


def assess_versions(
    candidate: RegisteredVersion,
    champion: RegisteredVersion | None,
    tags: Mapping[str, str],
    criteria: Criteria,
    *artifacts: Path,
) -> Assessment:
    """Rank the candidate, with these ``tags``, and the champion on the artifacts ``dataset`` and
    ``features``."""
    tables, features = read_dataset(artifacts[0]), artifacts[1]
    models: list[ExportedModel] = []
    with TemporaryDirectory() as folder:
        for version in filter(None, (candidate, champion)):
            try:
                place = Path(folder) / str(version.number)
                evaluation = version.download_evaluation("", place / "run")
                models.append(
                    ExportedModel.read(version.download_graphs(place / "model"), evaluation)
                )
            except (ValueError, FileNotFoundError) as error:
                reason = f"version {version.number} cannot be evaluated: {error}"
                return Assessment(
                    [
                        Check(
                            "files",
                            f"{reason}; --force --reason TEXT promotes without a comparison",
                        )
                    ]
                )
        # The test images may be newer than the model: leakage is found by the images that it was
        # trained on.
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
            criteria,
            names=(str(candidate.number), str(champion.number if champion else "")),
            looks=[Look(**look) for look in read_looks(candidate.model)],
        )


def _check_artifact(name: str, path: Path, tags: Mapping[str, str]) -> None:
    actual, expected = artifact_hash(path), tags.get(f"hash.{name}", "none")
    if actual != expected:
        raise ValueError(
            f"{path} has the hash {actual[:12]}, the candidate's {name} has {expected[:12]}: "
            "give the artifacts that the candidate was trained on"
        )
