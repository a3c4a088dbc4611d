"""Two releases on the searches of clients: a share of the clients is answered by the second, or it
repeats them."""

import asyncio
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException

from bifocal.search.query import Results
from bifocal.serving.canary.report import (
    EDGES,
    RUNNING,
    ClientBucket,
    Counts,
    Mode,
    ReleaseIdentity,
    Report,
)
from bifocal.serving.service.live import Deletions, LoadedRelease, ModelSource, Reloader
from bifocal.serving.service.models import ModelVersion, SearchRelease
from bifocal.serving.service.schema import SearchRequest
from bifocal.serving.service.turns import Threads, client_of_request

logger = logging.getLogger(__name__)
MAX_ANSWERS = 20_000
WAITING = 64
"""Searches that wait to be repeated; further ones are dropped."""
NICENESS = 10
PREFIX = "bifocal_comparison"
LABELS = ("arm", "release")
SUMS = {
    "searches": "Searches",
    "errors": "Searches that failed",
    "nothing": "Searches that found nothing",
    "calibrated": "Searches whose relevance is known",
    "relevance": "Sum of the probabilities that the first result is relevant",
    "clicked": "Answers of which the client chose a result",
}
BUCKETS = range(24, len(EDGES), 14)
"""Edges of a histogram in the metrics: each about twice the one before."""


@dataclass(frozen=True)
class Candidate:
    """A second release."""

    source: ModelSource  # offers no model while there is nothing to compare
    mode: Mode
    share: float  # of the clients, in [0, 1]


class Answers:
    """The last ``MAX_ANSWERS`` answers with their results: their clients may say which one they
    chose."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[frozenset[str], Callable[[], None] | None]] = (
            OrderedDict()
        )

    def add(self, items: Collection[str], count: Callable[[], None]) -> str:
        """Return a new answer's id; ``count`` is called when one of its items is first chosen."""
        name = secrets.token_urlsafe(12)
        self._answers[name] = frozenset(items), count
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return name

    def choose(self, name: str, item_id: str) -> bool:
        """Note that the client chose an item; return whether the answer is known and has the
        item."""
        items, count = self._answers.get(name, (frozenset[str](), None))
        if item_id not in items:
            return False
        if count is not None:
            count()
            self._answers[name] = items, None
        return True


class Find(Protocol):
    """Search by one of the models, see ``Handlers.find``."""

    def __call__(
        self,
        loaded: LoadedRelease,
        request: SearchRequest,
        upload: bytes | None = None,
        *,
        in_thread: bool = False,
    ) -> Awaitable[Results]: ...


class Comparison:
    """Comparison of the champion, the release in use, with a candidate; counts begin anew with
    another version."""

    def __init__(
        self,
        candidate: Candidate,
        champion: Reloader,
        find: Find,
        threads: Threads,
        deletions: Deletions,
    ) -> None:
        self.mode, self.share = candidate.mode, candidate.share
        # A thread of low priority computes when the threads that answer clients leave time.
        threads = Threads(1, _lower_priority) if candidate.mode == "shadow" else threads
        self.reloader = Reloader(candidate.source, threads, deletions, lambda model: None)
        self._champion = champion
        self._last: Report | None = None
        self.answers = Answers()
        self._repeats: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(WAITING)
        self._find, self._threads = find, threads
        self._versions: tuple[ModelVersion, ModelVersion] | None = None

    @property
    def state(self) -> str:
        """Whether a candidate is compared: ``RUNNING``, or why not."""
        if self.reloader.loaded is not None:
            return RUNNING
        return self.reloader.failure or "the candidate is being loaded"

    @property
    def report(self) -> Report | None:
        """Report of the present pair of releases; without a candidate, the last report."""
        champion, candidate = self._champion.loaded, self.reloader.loaded
        if champion is None or candidate is None:
            return self._last
        return self._report(champion.release, candidate.release) or self._last

    def candidate(self) -> LoadedRelease | None:
        """Return the candidate if it answers the client of this request; else None."""
        candidate = self.reloader.loaded
        if (
            self.mode == "shadow"
            or candidate is None
            or self._bucket(candidate).position >= self.share
        ):
            return None
        return candidate

    async def find(
        self, champion: LoadedRelease, request: SearchRequest, upload: bytes | None
    ) -> Results:
        """Return the results of a request; in a canary, the client may say which of them it
        chose."""
        candidate = self.reloader.loaded
        report = (
            None
            if candidate is None or request.offset
            else self._report(champion.release, candidate.release)
        )
        if candidate is None or report is None:
            return await self._find(self.candidate() or champion, request, upload, in_thread=True)
        bucket = self._bucket(candidate)
        within = bucket.position < self.share
        if self.mode == "shadow":
            start = time.perf_counter()
            results = await self._find(champion, request, upload)
            if within and upload is None:  # image files are too large to wait in a queue
                seconds = time.perf_counter() - start
                try:
                    self._repeats.put_nowait(
                        partial(
                            self._repeat, report, candidate, request, bucket.group, results, seconds
                        )
                    )
                except asyncio.QueueFull:
                    report.dropped += 1
            return results
        if not within:
            return await self._answer(
                report.counts_champion, champion, request, upload, bucket.group
            )
        try:
            return await self._answer(
                report.counts_candidate, candidate, request, upload, bucket.group
            )
        except Exception as error:
            results = await self._find(
                champion, request, upload
            )  # raises if the request is at fault
            report.counts_candidate.add_error(bucket.group)
            logger.exception("the candidate failed, the champion answers", exc_info=error)
            return results

    async def run_repeats(self) -> None:
        """Repeat searches one at a time, until the task is canceled."""
        while True:
            repeat = await self._repeats.get()
            try:
                await repeat()
            except Exception:
                logger.exception("a search could not be compared")

    def close(self) -> None:
        """Stop the threads of a shadow."""
        self._threads.close()

    async def _answer(
        self,
        counts: Counts,
        loaded: LoadedRelease,
        request: SearchRequest,
        upload: bytes | None,
        group: int,
    ) -> Results:
        start = time.perf_counter()
        results = await self._find(loaded, request, upload, in_thread=True)
        counts.add_answer(group, results.found, results.relevance, time.perf_counter() - start)
        results.answer = self.answers.add(
            [hit.id for hit in results], partial(counts.add_click, group)
        )
        return results

    async def _repeat(
        self,
        report: Report,
        candidate: LoadedRelease,
        request: SearchRequest,
        group: int,
        results: Results,
        seconds: float,
    ) -> None:
        """Repeat a search by the candidate, and compare its results with the champion's."""
        report.counts_champion.add_answer(group, results.found, results.relevance, seconds)
        start = time.perf_counter()
        try:
            repeated = await self._find(candidate, request, in_thread=True)
        except Exception as error:
            report.counts_candidate.add_error(group)
            level = logging.INFO if isinstance(error, HTTPException) else logging.ERROR
            logger.log(level, "the candidate failed in the shadow", exc_info=error)
            return
        seconds = time.perf_counter() - start
        report.counts_candidate.add_answer(group, repeated.found, repeated.relevance, seconds)
        report.add_overlap(group, [hit.id for hit in results], [hit.id for hit in repeated])

    def _bucket(self, candidate: LoadedRelease) -> ClientBucket:
        """Return the bucket of the client, which another candidate draws anew."""
        version = candidate.release.version
        return ClientBucket.of(client_of_request.get().name, version.release or version.model_hash)

    def _report(self, champion: SearchRelease, candidate: SearchRelease) -> Report | None:
        """Return the report of two releases; None while a candidate that was promoted is still in
        use as both."""
        versions = champion.version, candidate.version
        if self._last is None or self._versions != versions:
            first, second = (
                ReleaseIdentity(version.model, version.number, version.release)
                for version in versions
            )
            if first.same_model(second):
                return None
            self._versions, new = versions, Report(self.mode, self.share, first, second)
            if self._last and self._last.difference(new) is None:
                # The collection of one was refreshed.
                self._last.champion, self._last.candidate = first, second
            else:
                self._last = new
        return self._last


def _lower_priority() -> None:
    with suppress(OSError, AttributeError):  # other systems have no priority of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


class ComparisonCollector(Collector):
    """Metrics of the present pair of releases; they begin anew with another pair."""

    def __init__(self, comparison: Comparison) -> None:
        self._comparison = comparison

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        comparison, report = self._comparison, self._comparison.report
        running = float(comparison.state == RUNNING)
        yield GaugeMetricFamily(f"{PREFIX}_running", "Whether a candidate is compared", running)
        if report is None:
            return
        arms = {
            ("champion", report.champion.name): report.counts_champion,
            ("candidate", report.candidate.name): report.counts_candidate,
        }
        for name, text in SUMS.items():
            family = CounterMetricFamily(f"{PREFIX}_{name}", text, labels=LABELS)
            for labels, counts in arms.items():
                family.add_metric(labels, float(getattr(counts, name).sum()))
            yield family
        latency = HistogramMetricFamily(f"{PREFIX}_seconds", "Latency of searches", labels=LABELS)
        middles = np.concatenate([EDGES[:1], np.sqrt(EDGES[1:] * EDGES[:-1]), EDGES[-1:]])
        for labels, counts in arms.items():
            below = np.cumsum(counts.latency)
            buckets = [(f"{EDGES[edge]:.3g}", float(below[edge])) for edge in BUCKETS]
            total = float((middles * counts.latency).sum())
            latency.add_metric(labels, [*buckets, ("+Inf", float(below[-1]))], total)
        yield latency
        if report.mode == "shadow":
            for name, text, value in (
                ("dropped", "Searches that were not repeated for lack of time", report.dropped),
                ("compared", "Searches that both releases answered", float(report.compared.sum())),
                (
                    "overlap_at_10",
                    "Sum of the overlaps of their first ten results",
                    float(report.overlap.sum()),
                ),
            ):
                yield CounterMetricFamily(f"{PREFIX}_{name}", text, value)
