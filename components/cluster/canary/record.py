"""Record of a decision: logged with the candidate, which is withdrawn if the rule says so."""

from dataclasses import dataclass
from typing import Any

from bifocal.serving.canary.decision import Decision
from bifocal.serving.canary.report import Report, metric_json
from runtime.mlflow import Version, alias_lock, get_version, get_version_number, log_online_decision, withdraw
from runtime.mlflow.releases.store import read_digest
from runtime.notices import report as notice


@dataclass(frozen=True)
class Registered:
    """A registered model: the alias of its champion, and how long to wait for its lock."""

    model: str
    champion: str
    lock_timeout: float


def log_decision(model: Registered, report: Report, decision: Decision) -> tuple[Version, dict[str, Any]]:
    """Log a decision with the candidate, which is withdrawn if the rule says so; return the candidate and the record.

    Raises:
        ValueError: the report compares other releases than the registry has.
    """
    metrics = [metric_json(metric) for metric in report.metrics()]
    record = {**decision.record(), **report.to_json(), "metrics": metrics}
    if decision.verdict == "withdraw":
        reasons = "; ".join(decision.reasons)
        with alias_lock(model.model, model.lock_timeout):
            version = _candidate(model, report)
            withdraw(version, reasons)
        notice(f"bifocal canary, version {version.number} of {version.model} is withdrawn: {reasons}", "red")
    else:
        version = _candidate(model, report)
    log_online_decision(version, report.champion.version, record)
    return version, record


def _candidate(model: Registered, report: Report) -> Version:
    if report.candidate.version is None:
        raise ValueError("the service does not compare registered versions")
    champion = get_version(model.model, model.champion)
    candidate = get_version_number(model.model, report.candidate.version)
    for arm, version, release in (("champion", champion, report.champion), ("candidate", candidate, report.candidate)):
        if version is None or (version.number, read_digest(version)) != (release.version, release.digest):
            raise ValueError(
                f"the report has {release.name} as the {arm}, but the registry now has another version: wait until "
                "the service compares the present releases"
            )
    return candidate
