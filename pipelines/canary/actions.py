"""Promotion and withdrawal of the candidate of a comparison."""

from pathlib import Path

from bifocal.serving.canary.decision import Decision
from bifocal.serving.canary.report import Release, Report, metric_json
from components.cluster.promote.run import Decision as Promotion
from components.cluster.promote.run import promote
from components.cluster.promote.spec import PromotionPolicy
from runtime.mlflow import Version, get_version, get_version_number, log_online_decision, promotion_lock, withdraw
from runtime.mlflow.releases.store import read_digest
from runtime.s3.remote_files import fetch_remote_files


def promote_candidate(policy: PromotionPolicy, report: Report, decision: Decision, artifacts: Path) -> Promotion:
    """Log the online decision, and decide on the candidate as ``python -m pipelines promote`` does."""
    version = _candidate(policy, report)
    log_online_decision(version, report.champion.version, _record(report, decision))
    fetch_remote_files()
    return promote(policy, artifacts / "dataset", artifacts / "features", number=version.number)


def withdraw_candidate(policy: PromotionPolicy, report: Report, decision: Decision) -> Version:
    """Log the online decision, and veto the candidate: no service compares it any more, and no promotion takes it."""
    with promotion_lock(policy.model, policy.lock_timeout):
        version = _candidate(policy, report)
        withdraw(version, "; ".join(decision.reasons))
        log_online_decision(version, report.champion.version, _record(report, decision))
    return version


def _candidate(policy: PromotionPolicy, report: Report) -> Version:
    """Return the candidate of a report."""
    champion = get_version(policy.model, policy.champion)
    if report.candidate.version is None:
        raise ValueError("the service compares no registered versions")
    candidate = get_version_number(policy.model, report.candidate.version)
    for arm, version, release in (("champion", champion, report.champion), ("candidate", candidate, report.candidate)):
        if version is None or not _is_same(version, release):
            raise ValueError(
                f"the report is about {release.name} as the {arm}, and the registry has another one by now: wait until "
                "the service compares the present releases"
            )
    return candidate


def _is_same(version: Version, release: Release) -> bool:
    return version.number == release.version and read_digest(version) == release.digest


def _record(report: Report, decision: Decision) -> dict[str, object]:
    return {**decision.record(), **report.to_json(), "metrics": [metric_json(metric) for metric in report.metrics()]}
