"""Step canary: run. ``python -m pipelines canary`` calls the same functions."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from pydantic import TypeAdapter

from bifocal.durable import write_json
from bifocal.onnx.files import read_json
from bifocal.progress import log_line
from bifocal.serving.canary.decision import Decision, Rule, decide
from bifocal.serving.canary.report import Report
from bifocal.serving.canary.services import read_reports
from bifocal.serving.service.settings import read_keys
from components.cluster.steps import VERDICT, CanaryParams
from runtime.mlflow import (
    RegisteredVersion,
    alias_lock,
    get_version,
    get_version_number,
    log_online_decision,
    withdraw,
)
from runtime.mlflow.releases import read_digest
from runtime.notices import report as notice
from runtime.s3.storage import Storage

LOOK_SECONDS = 600.0
Look = Callable[[], tuple[Report | None, str | None]]
"""Returns the present report, and why a service compares no candidate."""


@dataclass(frozen=True)
class Registered:
    """A registered model: the alias of its champion, and how long to wait for its lock."""

    model: str
    champion: str
    lock_timeout: float


def run(params: CanaryParams, *, registration: Path, canary: Path) -> dict[str, Any]:
    """Wait until the rule promotes or withdraws the version that ``registration`` names, and record
    the decision."""
    registered = read_json(registration / "registration.json")
    rule = TypeAdapter(Rule).validate_python(params.rule)
    with TemporaryDirectory() as work:
        counts, storage = Path(work) / "counts", Storage()
        if storage.listing(params.folder):
            storage.download(params.folder, counts)

        def look() -> tuple[Report | None, str | None]:
            report, stopped = read_reports(params.services, api_key(), counts)
            storage.upload(counts, params.folder)
            if report is not None and report.candidate.version != registered["version"]:
                return None, f"the service compares {report.candidate.name}"
            return report, stopped

        report, decision, stopped = wait_for_decision(look, rule, params.hours)
    verdict, reasons = "wait", [stopped or "no service has a report"]
    if report is not None and decision is not None:
        model = Registered(registered["model"], params.champion, params.lock_timeout)
        verdict, reasons = decision.verdict, decision.reasons
        write_json(canary / "decision.json", log_decision(model, report, decision)[1])
    else:
        write_json(canary / "decision.json", {"verdict": verdict, "reasons": reasons})
    for reason in reasons:
        log_line(f"{verdict}: {reason}")
    if verdict == "wait":
        name = f"version {registered['version']} of {registered['model']}"
        notice(
            f"bifocal canary, {name}: no decision after {params.hours:g} hours: "
            f"{'; '.join(reasons)}",
            "yellow",
        )
    return {VERDICT: verdict}


def api_key() -> str | None:
    """Return a key of the environment for the service."""
    return next(iter(sorted(read_keys(os.environ)[0])), None)


def wait_for_decision(
    look: Look, rule: Rule, hours: float
) -> tuple[Report | None, Decision | None, str | None]:
    """Look every ten minutes until the rule decides, or the time is over; the intervals of the rule
    hold at each look.

    Returns:
        The report, the decision, and why there is none.
    """
    deadline = monotonic() + 3600 * hours
    while True:
        report, stopped = look()
        decision = None if stopped is not None or report is None else decide(rule, report)
        if (decision and decision.verdict != "wait") or monotonic() >= deadline:
            return report, decision, stopped
        sleep(min(LOOK_SECONDS, max(0.0, deadline - monotonic())))


def log_decision(
    model: Registered, report: Report, decision: Decision
) -> tuple[RegisteredVersion, dict[str, Any]]:
    """Log a decision with the candidate, which is withdrawn if the rule says so; return the
    candidate and the record.

    Raises:
        ValueError: the report compares other releases than the registry has.
    """
    record = decision.record() | report.to_json()
    if decision.verdict == "withdraw":
        reasons = "; ".join(decision.reasons)
        with alias_lock(model.model, model.lock_timeout):
            version = _candidate(model, report)
            withdraw(version, reasons)
        notice(
            f"bifocal canary, version {version.number} of {version.model} is withdrawn: {reasons}",
            "red",
        )
    else:
        version = _candidate(model, report)
    log_online_decision(version, report.champion.version, record)
    return version, record


def _candidate(model: Registered, report: Report) -> RegisteredVersion:
    if report.candidate.version is None:
        raise ValueError("the service does not compare registered versions")
    champion = get_version(model.model, model.champion)
    candidate = get_version_number(model.model, report.candidate.version)
    for arm, version, release in (
        ("champion", champion, report.champion),
        ("candidate", candidate, report.candidate),
    ):
        if version is None or (version.number, read_digest(version)) != (
            release.version,
            release.digest,
        ):
            raise ValueError(
                f"the report has {release.name} as the {arm}, but the registry now has another "
                "version: wait until the service compares the present releases"
            )
    return candidate
