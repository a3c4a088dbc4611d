"""Two releases on the searches of clients: a share of the clients is answered by the second, or it repeats them."""

import asyncio
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from starlette.exceptions import HTTPException

from bifocal.serving.canary.answers import Answers
from bifocal.serving.canary.counts import Counts, Place
from bifocal.serving.canary.report import RUNNING, Mode, Release, Report
from bifocal.serving.service.live.reloading import Generation, ModelSource, Reloader
from bifocal.serving.service.queries import QueryResult, QueryRunner
from bifocal.serving.service.requests import SearchRequest
from bifocal.serving.service.served_model import ServedModel, Version

logger = logging.getLogger(__name__)
WAITING = 64
"""Searches that wait to be repeated; further ones are dropped."""
NICENESS = 10


@dataclass(frozen=True)
class Candidate:
    """A second release."""

    source: ModelSource  # offers no model while there is nothing to compare
    mode: Mode
    share: float  # of the clients, in [0, 1]


class Comparison:
    """Comparison of the champion, the release in use, with a candidate; counts begin anew with another version."""

    def __init__(self, candidate: Candidate, champion: Reloader, runner: QueryRunner, executor: Executor) -> None:
        self.mode, self.share = candidate.mode, candidate.share
        # A thread of low priority computes when the threads that answer clients leave time.
        threads = ThreadPoolExecutor(1, "shadow", _lower_priority) if candidate.mode == "shadow" else executor
        self.reloader = Reloader(candidate.source, threads, lambda served: None)
        self._champion = champion
        self._last: Report | None = None
        self.answers = Answers()
        self._repeats: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue(WAITING)
        self._runner, self._threads = runner, threads
        self._versions: tuple[Version, Version] | None = None

    @property
    def state(self) -> str:
        """Whether a candidate is compared: ``RUNNING``, or why not."""
        if self.reloader.generation is not None:
            return RUNNING
        return self.reloader.failure or "the candidate is being loaded"

    @property
    def report(self) -> Report | None:
        """Report of the present pair of releases; without a candidate, the last report."""
        champion, candidate = self._champion.generation, self.reloader.generation
        if champion is None or candidate is None:
            return self._last
        return self._report(champion.served, candidate.served) or self._last

    def generation(self, client: str) -> Generation | None:
        """Return the candidate if it answers a client; else None."""
        candidate = self.reloader.generation
        if self.mode == "shadow" or candidate is None or not self._place(candidate, client).is_within(self.share):
            return None
        return candidate

    async def find(
        self, champion: Generation, request: SearchRequest, upload: bytes | None, client: str
    ) -> tuple[QueryResult, str | None]:
        """Return the results of a request, and the id under which the client may say which result it chose."""
        candidate = self.reloader.generation
        report = None if candidate is None or request.offset else self._report(champion.served, candidate.served)
        if candidate is None or report is None:
            return await self._runner.find(self.generation(client) or champion, request, upload, in_thread=True), None
        place = self._place(candidate, client)
        within = place.is_within(self.share)
        if self.mode == "shadow":
            found = await self._runner.find(champion, request, upload)
            if within and upload is None:  # image files are too large to wait in a queue
                try:
                    self._repeats.put_nowait(partial(self._repeat, report, candidate, request, place.group, found))
                except asyncio.QueueFull:
                    report.dropped += 1
            return found, None
        if not within:
            return await self._answer(report.counts_champion, champion, request, upload, place.group)
        try:
            return await self._answer(report.counts_candidate, candidate, request, upload, place.group)
        except Exception as error:
            found = await self._runner.find(champion, request, upload)  # raises if the request is at fault
            report.counts_candidate.add_error(place.group)
            logger.exception("the candidate failed, the champion answers", exc_info=error)
            return found, None

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
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _answer(
        self, counts: Counts, generation: Generation, request: SearchRequest, upload: bytes | None, group: int
    ) -> tuple[QueryResult, str]:
        found = await self._runner.find(generation, request, upload, in_thread=True)
        counts.add_answer(group, found.found, found.relevance, found.seconds)
        return found, self.answers.add(found.ids, partial(counts.add_click, group))

    async def _repeat(
        self, report: Report, candidate: Generation, request: SearchRequest, group: int, found: QueryResult
    ) -> None:
        """Repeat a search by the candidate, and compare its results with the champion's."""
        report.counts_champion.add_answer(group, found.found, found.relevance, found.seconds)
        try:
            repeated = await self._runner.find(candidate, request, in_thread=True)
        except Exception as error:
            report.counts_candidate.add_error(group)
            level = logging.INFO if isinstance(error, HTTPException) else logging.ERROR
            logger.log(level, "the candidate failed in the shadow", exc_info=error)
            return
        report.counts_candidate.add_answer(group, repeated.found, repeated.relevance, repeated.seconds)
        report.add_overlap(group, found.ids, repeated.ids)

    def _place(self, candidate: Generation, client: str) -> Place:
        """Return the place of a client, which another candidate draws anew."""
        version = candidate.served.version
        return Place.of(client, version.release or version.model_hash)

    def _report(self, champion: ServedModel, candidate: ServedModel) -> Report | None:
        """Return the report of two releases; None while a candidate that was promoted is still in use as both."""
        versions = champion.version, candidate.version
        if self._last is None or self._versions != versions:
            first, second = (Release(version.model, version.number, version.release) for version in versions)
            if first.same_model(second):
                return None
            self._versions = versions
            if self._last and self._last.champion.same_model(first) and self._last.candidate.same_model(second):
                self._last.champion, self._last.candidate = first, second  # the collection of one was refreshed
            else:
                self._last = Report(self.mode, self.share, first, second)
        return self._last


def _lower_priority() -> None:
    with suppress(OSError, AttributeError):  # other systems have no priority of a thread
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
