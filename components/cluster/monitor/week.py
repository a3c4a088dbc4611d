"""Writing of the reference, and monitoring of a week: a model with its collection and its index."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from bifocal.monitoring import (
    TESTS,
    Arrivals,
    Finding,
    Ledger,
    NewImages,
    Observations,
    Observer,
    Reference,
    Week,
    compare,
    exposition,
    inspect_arrivals,
    monitoring_page,
    read_pairs,
    read_queries,
)
from bifocal.monitoring.discrepancy import unusual
from bifocal.monitoring.drift import Thresholds
from bifocal.monitoring.page import value_text
from bifocal.report.html import render
from bifocal.search.collection.collection import Collection
from bifocal.search.index.index import SearchIndex
from bifocal.serving.embedder import Embedder
from bifocal.serving.identity import model_hash
from components.cluster.monitor.spec import MonitorPolicy
from runtime.artifacts import write_json, write_text
from runtime.mlflow import log_monitoring
from runtime.notices import send_notice

REFERENCE, LEDGER, RESULTS, PAGE, TEXTFILE = "reference", "images.parquet", "monitor.json", "index.html", "monitor.prom"
SHOWN = 12
"""Unusual images on the page."""


@dataclass(frozen=True)
class Artifacts:
    """Directories of an exported model, of its collection and of its index."""

    onnx: Path
    collection: Path
    index: Path


@dataclass(frozen=True)
class Monitor:
    """Monitoring of one model.

    Args:
        artifacts: the model with its collection and its index.
        folder: reference, results and pages.
        policy: thresholds and sizes of the samples.
        queries: logs of the service, or files of sentences, see ``read_queries``.
        probes: CSV file of pairs, see ``read_pairs``; None for none.
    """

    artifacts: Artifacts
    folder: Path
    policy: MonitorPolicy
    queries: Sequence[Path] = ()
    probes: Path | None = None

    def has_reference(self) -> bool:
        """Whether the folder has a reference of this model."""
        folder = self.folder / REFERENCE
        return folder.is_dir() and Reference.read(folder).model == model_hash(self.artifacts.onnx)

    def write_reference(self, day: date, days: int) -> Reference:
        """Write the reference: all images of the collection, and the queries of some days.

        Args:
            day: the last one.
            days: their number.

        Raises:
            FileNotFoundError: there is no model, collection or index.
            ValueError: they are not of one model.
        """
        observer, model = self._observer()
        sizes = self.policy.sample
        rows = np.flatnonzero(~observer.collection.deleted).tolist()
        ledger = Ledger(self.folder / LEDGER)
        ledger.start(observer.collection)
        everything = Arrivals(rows, ledger.rejected(observer.collection))
        observations = self._observe(observer, everything, day, days, sizes.reference_images, sizes.reference_queries)
        reference = Reference(model, day, observations)
        reference.write(self.folder / REFERENCE)
        ledger.write()
        return reference

    def compare(self, day: date, days: int) -> Week:
        """Compare some days with the reference; write the results, the page and the text file of Prometheus.

        A second run for the same day writes the same results.

        Args:
            day: the last one.
            days: their number.

        Raises:
            FileNotFoundError: there is no model, collection, index or reference.
            ValueError: they are not of one model.
        """
        reference = Reference.read(self.folder / REFERENCE)
        observer, model = self._observer()
        if reference.model != model:
            raise ValueError(
                f"the reference in {self.folder} is of a model with hash {reference.model[:12]}, the model of "
                f"{self.artifacts.onnx} has {model[:12]}: write a new reference with --reference"
            )
        ledger = Ledger(self.folder / LEDGER)
        ledger.record(observer.collection, day)
        ledger.write()
        arrivals, sizes = ledger.arrivals(observer.collection, day, days), self.policy.sample
        observations = self._observe(observer, arrivals, day, days, sizes.images, sizes.queries)
        findings = compare(reference.observations, observations, thresholds_of(self.policy))
        counts = {
            "new images": len(arrivals.rows),
            "rejected images": len(arrivals.rejected),
            "queries": len(observations.queries),
            "probes": 0 if observations.probes is None else len(observations.probes.keys),
        }
        week = Week(day, days, counts, findings)
        write_json(self._week_folder(day) / RESULTS, {"reference": identity(reference), **_content(week)})
        images = self._new_images(observer, arrivals, reference.observations)
        name = f"{observer.collection.model.name} ({model[:12]})"
        page = monitoring_page(name, reference.day, week, images, self._history(identity(reference), day))
        write_text(self._week_folder(day) / PAGE, render(page))
        write_text(self.folder / TEXTFILE, exposition(findings, counts, datetime.now(UTC)))
        return week

    def send(self, week: Week) -> int:
        """Send a notice of the crossed thresholds, see ``runtime.notices``; return the number of sent notices.

        Raises:
            OSError: the web hook does not answer.
        """
        if not week.crossed:
            return 0
        reasons = (
            f"{TESTS[finding.name]}: {value_text(finding.name, finding.reference)} in the reference, "
            f"{value_text(finding.name, finding.value)} now"
            for finding in week.crossed
        )
        return send_notice(f"bifocal monitor, {week.days} days up to {week.day}: {'; '.join(reasons)}")

    def log(self, week: Week) -> None:
        """Log the results of a week to MLflow.

        Raises:
            OSError: the server does not answer.
        """
        reference = Reference.read(self.folder / REFERENCE)
        metrics = {f"{finding.name}.value": finding.value for finding in week.findings}
        metrics |= {f"{finding.name}.p_value": finding.p_value for finding in week.findings}
        metrics |= {kind.replace(" ", "_"): float(count) for kind, count in week.counts.items()}
        metrics["thresholds_crossed"] = float(len(week.crossed))
        tags = {"hash.model": reference.model, "monitoring.reference": reference.day.isoformat()}
        step = max((week.day - reference.day).days, 0)
        log_monitoring(identity(reference), step, metrics, tags, self.page(week.day), week.day.isoformat())

    def page(self, day: date) -> Path:
        """Return the file of a day's page."""
        return self._week_folder(day) / PAGE

    def _week_folder(self, day: date) -> Path:
        folder = self.folder / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _observer(self) -> tuple[Observer, str]:
        onnx, model = self.artifacts.onnx, model_hash(self.artifacts.onnx)
        collection, index = Collection.open(self.artifacts.collection), SearchIndex.open(self.artifacts.index, model)
        if collection.model.sha256 != model:
            raise ValueError(f"another model computed {self.artifacts.collection}: embed the collection again")
        return Observer(onnx, Embedder(onnx), collection, index), model

    def _observe(
        self, observer: Observer, arrivals: Arrivals, day: date, days: int, images: int, queries: int
    ) -> Observations:
        end = datetime.combine(day + timedelta(days=1), time(), UTC)
        sentences = read_queries(self.queries, end - timedelta(days=days), end)
        pairs = None if self.probes is None else read_pairs(self.probes)
        return observer.observe(arrivals, sentences, pairs, images, queries)

    def _new_images(self, observer: Observer, arrivals: Arrivals, reference: Observations) -> NewImages:
        inspection, dataset = inspect_arrivals(observer.collection, arrivals)
        rows, shown = observer.sampled_rows(arrivals, self.policy.sample.images), []
        if len(rows) and len(reference.images):
            vectors = np.asarray(observer.collection.vectors[rows], np.float32)
            order = np.argsort(-unusual(reference.images, vectors), kind="stable")[:SHOWN]
            shown = [observer.collection.ids[row] for row in rows[order]]
        return NewImages(dataset, inspection, shown)

    def _history(self, reference: str, until: date) -> list[Week]:
        """Return the results of this reference up to a day, in the order of their days."""
        contents = [json.loads(file.read_text()) for file in sorted(self.folder.glob(f"*/{RESULTS}"))]
        weeks = [_week(content) for content in contents if content["reference"] == reference]
        return [week for week in weeks if week.day <= until]


def thresholds_of(policy: MonitorPolicy) -> Thresholds:
    """Return the values that the tests read.

    Raises:
        ValueError: the permutations are too few for the rate of false alarms.
    """
    changes = {str(name): change for name, change in policy.least_change.items()}
    return Thresholds(policy.false_alarm_rate, policy.permutations, policy.least, changes)


def identity(reference: Reference) -> str:
    """Return a short name of a reference."""
    return sha256(f"{reference.model} {reference.day}".encode()).hexdigest()[:16]


def _content(week: Week) -> dict[str, Any]:
    findings = [{**asdict(finding), "crossed": finding.crossed} for finding in week.findings]
    return {"day": week.day.isoformat(), "days": week.days, "counts": dict(week.counts), "findings": findings}


def _week(content: dict[str, Any]) -> Week:
    names = [entry.name for entry in fields(Finding)]
    findings = [Finding(**{name: finding[name] for name in names}) for finding in content["findings"]]
    return Week(date.fromisoformat(content["day"]), content["days"], content["counts"], findings)
