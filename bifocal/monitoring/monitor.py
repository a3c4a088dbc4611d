"""Monitoring of a model with its collection and its index: the reference, then the results of each
week."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

import numpy as np

from bifocal.draws import drawn
from bifocal.durable import write_json, write_text
from bifocal.monitoring.arrivals import Arrivals, Ledger, inspect_arrivals
from bifocal.monitoring.discrepancy import unusual
from bifocal.monitoring.drift import Thresholds, compare, week_blocks
from bifocal.monitoring.observations import Observations, Observer
from bifocal.monitoring.page import History, monitoring_page, unusual_images
from bifocal.monitoring.queries import read_queries
from bifocal.monitoring.reference import Reference
from bifocal.monitoring.week import Week
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.files import model_hash, read_json
from bifocal.report.sections import render
from bifocal.search.collection.collection import Collection
from bifocal.search.index.index import SearchIndex

REFERENCE, LEDGER, RESULTS, PAGE, TEXTFILE = (
    "reference",
    "images.parquet",
    "monitor.json",
    "index.html",
    "monitor.prom",
)
SHOWN = 12
"""Unusual images on the page."""


@dataclass(frozen=True)
class Artifacts:
    """Directories: an exported model, its collection and its index."""

    onnx: Path
    collection: Path
    index: Path


@dataclass(frozen=True)
class Monitor:
    """Monitoring of one model.

    Args:
        artifacts: the model with its collection and its index.
        folder: reference, results and pages.
        thresholds: when a difference is reported, and the sizes of the samples.
        queries: logs of the service, or files of sentences, see ``read_queries``.
    """

    artifacts: Artifacts
    folder: Path
    thresholds: Thresholds
    queries: Sequence[Path] = ()

    def has_reference(self) -> bool:
        """Whether the folder has a reference, of this model or of a previous one."""
        return (self.folder / REFERENCE).is_dir()

    def reference(self) -> Reference:
        """Read the reference."""
        return Reference.read(self.folder / REFERENCE)

    def write_reference(self, day: date, days: int) -> Reference:
        """Write the reference: all images of the collection, and the queries of ``days`` days up to
        ``day``.

        Raises:
            FileNotFoundError: there is no model, collection or index.
            ValueError: they do not belong to one model.
        """
        observer, model = self._observer()
        ledger = Ledger(self.folder / LEDGER)
        ledger.start(observer.collection)
        images, sentences = ledger.old(observer.collection), self._sentences(day, days)
        reference = self._observed(observer, model, images, day, days, sentences)
        ledger.write()
        return reference

    def _renewed_reference(
        self, previous: Reference, observer: Observer, model: str, day: date, days: int
    ) -> Reference:
        """Observe the images and queries of a previous model's reference with this model, and write
        that.

        Otherwise each promotion would make the week before it the reference, and a slow drift would
        never be seen.
        """
        ledger = Ledger(self.folder / LEDGER)
        images = ledger.old(observer.collection)
        if len(images.rows) < self.thresholds.least:
            return self.write_reference(day, days)
        sentences, of_days = previous.sentences, (previous.day, previous.days)
        if sentences is None:
            sentences = self._sentences(previous.day, previous.days)
            if previous.hashes is not None:
                known = set(previous.hashes)
                sentences = [
                    sentence for sentence in sentences if previous.hash_of(sentence) in known
                ]
        if len(sentences) < self.thresholds.least:  # the logs of those days are gone
            sentences, of_days = self._sentences(day, days), (day, days)
        return self._observed(observer, model, images, *of_days, sentences)

    def _observed(
        self,
        observer: Observer,
        model: str,
        images: Arrivals,
        day: date,
        days: int,
        sentences: Sequence[str],
    ) -> Reference:
        sizes = self.thresholds.sample
        observations = observer.observe(
            images, sentences, sizes.reference_images, sizes.reference_queries
        )
        sentences = drawn(sentences, sizes.reference_queries, observer.seed)
        reference = Reference(model, day, observations, days, sentences).reduced(
            self.thresholds.keep_queries
        )
        reference.write(self.folder / REFERENCE)
        return reference

    def _without_old_text(self, reference: Reference, day: date) -> Reference:
        """Remove the texts of users that the thresholds no longer allow."""
        limit, keep = self.thresholds.keep_days, self.thresholds.keep_queries
        kept = reference.reduced(
            False if limit is not None and (day - reference.day).days > limit else keep
        )
        if (kept.sentences, kept.hashes) != (reference.sentences, reference.hashes):
            kept.write(self.folder / REFERENCE)
        return kept

    def compare(self, day: date, days: int) -> Week:
        """Compare ``days`` days up to ``day`` with the reference; write the results, the page and
        Prometheus' file.

        After a promotion, the images and queries of the reference are observed again with the new
        model. A second run for the same day writes the same results.

        Raises:
            FileNotFoundError: there is no model, collection, index or reference.
            ValueError: they do not belong to one model.
        """
        reference = self._without_old_text(self.reference(), day)
        observer, model = self._observer()
        ledger = Ledger(self.folder / LEDGER)
        ledger.check(observer.collection)
        if reference.model != model:
            reference = self._renewed_reference(reference, observer, model, day, days)
        ledger.record(observer.collection, day)
        ledger.write()
        arrivals, sizes = ledger.arrivals(observer.collection, day, days), self.thresholds.sample
        observations = observer.observe(
            arrivals, self._sentences(day, days), sizes.images, sizes.queries
        )
        counts = {
            "new images": len(arrivals.rows),
            "independent groups of images": self._blocks(reference.observations, observations),
            "rejected images": len(arrivals.rejected),
            "queries": len(observations.queries),
        }
        week = Week(
            day, days, counts, compare(reference.observations, observations, self.thresholds)
        )
        self.page(day).parent.mkdir(parents=True, exist_ok=True)
        content = {"reference": reference.name, **week.to_json()}
        write_json(self.page(day).with_name(RESULTS), content)
        inspection, dataset = inspect_arrivals(observer.collection, arrivals)
        gallery = unusual_images(dataset, self._unusual(observer, arrivals, reference.observations))
        name = f"{observer.collection.model.name} ({model[:12]})"
        history = self._history(reference.name, day)
        write_text(
            self.page(day),
            render(monitoring_page(name, reference.day, week, inspection, gallery, history)),
        )
        write_text(self.folder / TEXTFILE, week.exposition(datetime.now(UTC)))
        return week

    def _blocks(self, reference: Observations, week: Observations) -> int:
        if min(len(reference.images), len(week.images)) < self.thresholds.least:
            return 0
        return len(np.unique(week_blocks(reference, week)[1]))

    def page(self, day: date) -> Path:
        """Return the file of a day's page; the results are beside it."""
        return self.folder / day.isoformat() / PAGE

    def _observer(self) -> tuple[Observer, str]:
        onnx, model = self.artifacts.onnx, model_hash(self.artifacts.onnx)
        collection, index = (
            Collection.open(self.artifacts.collection),
            SearchIndex.open(self.artifacts.index, model),
        )
        if collection.model.sha256 != model:
            raise ValueError(
                f"another model computed {self.artifacts.collection}: embed the collection again"
            )
        return Observer(Embedder(onnx), collection, index), model

    def _sentences(self, day: date, days: int) -> list[str]:
        end = datetime.combine(day + timedelta(days=1), time(), UTC)
        return read_queries(self.queries, end - timedelta(days=days), end)

    def _unusual(
        self, observer: Observer, arrivals: Arrivals, reference: Observations
    ) -> list[str]:
        """Return the ids of the images that are least like the reference, the most unusual
        first."""
        rows = observer.sampled_rows(arrivals, self.thresholds.sample.images)
        if not len(rows) or not len(reference.images):
            return []
        vectors = np.asarray(observer.collection.vectors[rows], np.float32)
        order = np.argsort(-unusual(reference.images, vectors), kind="stable")[:SHOWN]
        return [observer.collection.ids[row] for row in rows[order]]

    def _history(self, reference: str, until: date) -> History:
        """Return the values of the weeks up to ``until`` that were compared with this reference."""
        contents = [read_json(file) for file in sorted(self.folder.glob(f"*/{RESULTS}"))]
        return {
            day: {finding["name"]: finding["value"] for finding in content["findings"]}
            for content in contents
            if content["reference"] == reference
            and (day := date.fromisoformat(content["day"])) <= until
        }
