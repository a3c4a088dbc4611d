"""What changes while requests are answered: the model in use, sentences that wait for it, and
deleted items."""

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from bifocal.durable import append_line, json_text
from bifocal.search.deletion import read_ids
from bifocal.search.index.index import SearchIndex
from bifocal.serving.service.turns import Threads, check_spent, client_of_request

if TYPE_CHECKING:
    from bifocal.serving.service.models import SearchRelease

logger = logging.getLogger(__name__)
WARM_UP = "a dog"
LETTERS = 16
"""Letters of a sentence by which its cost grows by one; each sentence of a batch costs as much as
the longest."""
MAX_COST, SHORT_COST = 64, 32
"""Largest cost of a batch, and of the sentences of a request that share a batch with others."""
FAILED = "the newest model or index could not be loaded: see the log of the service"
"""Reason for probes, which need no key: errors may have addresses with passwords, and paths."""


class Deletions:
    """Ids of deleted items, kept in a file of one JSON string per line, to which other processes
    may add.

    The indexes in use leave the items out: everybody else asks the index.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file, self._lock, self._size = file, threading.Lock(), 0
        self._ids: dict[str, None] = {}  # in the order of the deletions
        self._indexes: WeakSet[SearchIndex] = WeakSet()
        self.read_file()

    def __contains__(self, item_id: object) -> bool:
        """Return whether an item is deleted."""
        return item_id in self._ids

    def __iter__(self) -> Iterator[str]:
        """Iterate over the ids."""
        return iter(list(self._ids))

    def apply(self, index: SearchIndex) -> None:
        """Remove the deleted items from an index, at once and from now on."""
        with self._lock:
            self._indexes.add(index)
            index.remove(self._ids)

    def read_file(self) -> None:
        """Read the deletions of other processes: lines of the file since the last call."""
        try:
            size = 0 if self._file is None else self._file.stat().st_size
        except FileNotFoundError:
            size = 0
        if size == self._size or self._file is None:
            return
        with self._lock:
            if size < self._size:  # cut back after a full disk, or another file
                self._size = 0
            with self._file.open("rb") as file:
                file.seek(self._size)
                content = file.read()
            # A line without an end is being written, or was when its process was killed.
            complete = content[: content.rfind(b"\n") + 1]
            self._size += len(complete)
        self.include(read_ids(content.decode("utf-8", "replace"))[0])

    def add(self, item_id: str) -> None:
        """Delete an item; it stays deleted after a crash."""
        if self._file is not None:
            append_line(self._file, json_text(item_id))
        self.include([item_id])

    def include(self, item_ids: Iterable[str]) -> None:
        """Note that items are deleted."""
        with self._lock:
            new = [item_id for item_id in item_ids if item_id not in self._ids]
            self._ids.update(dict.fromkeys(new))
            for index in self._indexes:
                index.remove(new)


def cost(sentences: Sequence[str]) -> int:
    """Return the cost of sentences that are encoded together.

    >>> cost(["a dog", "a cat"]), cost(["a" * 640, "a cat"])
    (2, 82)
    """
    return len(sentences) * (1 + max(map(len, sentences), default=0) // LETTERS)


def batches(sentences: Sequence[str]) -> Iterator[list[str]]:
    """Yield sentences in batches of at most ``MAX_COST``, or of one sentence."""
    batch: list[str] = []
    for sentence in sentences:
        if batch and cost([*batch, sentence]) > MAX_COST:
            yield batch
            batch = []
        batch.append(sentence)
    if batch:
        yield batch


class LoadedRelease:
    """A model in memory with its threads; a request keeps the one that it started with.

    Requests of short sentences that arrive while others are encoded form the next batch, clients in
    turn: one run of the text encoder for all of them. Other requests are encoded by themselves, in
    parts.
    """

    def __init__(self, release: "SearchRelease", threads: Threads) -> None:
        self.release, self.threads = release, threads
        self._waiting: list[tuple[list[str], asyncio.Future[NDArray[Any]], str]] = []
        self._task: asyncio.Task[None] | None = None

    async def embed(self, sentences: Sequence[str]) -> NDArray[Any]:
        """Return the vectors (B, d) of the B sentences of a request."""
        if cost(sentences) > SHORT_COST:
            encode, parts = self.release.embedder.embed_sentences, list[NDArray[Any]]()
            for part in batches(sentences):
                check_spent()
                parts.append(await self.threads.others.run(encode, part))
            return np.concatenate(parts)
        future: asyncio.Future[NDArray[Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(sentences), future, client_of_request.get().payer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await future

    async def _run(self) -> None:
        while self._waiting:
            batch = self._take()
            try:
                await self._answer(batch)
            except Exception:  # one request may be the cause: encode each by itself
                for entry in batch:
                    try:
                        await self._answer([entry])
                    except Exception as error:
                        if not entry[1].done():
                            entry[1].set_exception(error)
        self._task = None

    def _take(self) -> list[tuple[list[str], asyncio.Future[NDArray[Any]], str]]:
        """Return the first request of each client, then the second ones, up to the cost of a
        batch."""
        order, counts = list[tuple[int, int]](), Counter[str]()
        for number, (*_, client) in enumerate(self._waiting):
            order.append((counts[client], number))
            counts[client] += 1
        batch, sentences = list[int](), list[str]()
        for _, number in sorted(order):
            sentences += self._waiting[number][0]
            if batch and cost(sentences) > MAX_COST:
                break
            batch.append(number)
        taken = [self._waiting[number] for number in batch]
        self._waiting = [entry for number, entry in enumerate(self._waiting) if number not in batch]
        return taken

    async def _answer(
        self, batch: Sequence[tuple[list[str], asyncio.Future[NDArray[Any]], str]]
    ) -> None:
        different = list(
            dict.fromkeys(sentence for sentences, *_ in batch for sentence in sentences)
        )
        vectors = await asyncio.get_running_loop().run_in_executor(
            self.threads.searches.executor, self.release.embedder.embed_sentences, different
        )
        row = {sentence: number for number, sentence in enumerate(different)}
        for sentences, future, _ in batch:
            if not future.done():  # the client may have gone
                future.set_result(vectors[[row[sentence] for sentence in sentences]])


class NoModel(Exception):
    """The source offers no model now; the message is the reason."""


class ModelSource(Protocol):
    """Where models and indexes come from: a run folder, or a registry."""

    @property
    def reversible(self) -> bool:
        """Whether a previous key may come back: the previous model then stays loaded."""

    def key(self) -> str:
        """Return a text that changes with the model or the index, or raise ``NoModel``; called
        every few seconds."""

    def load(self) -> "SearchRelease":
        """Return the model with its index."""


class Reloader:
    """The model in use; a reversible source keeps the previous one in memory, to roll back without
    loading."""

    def __init__(
        self,
        source: ModelSource,
        threads: Threads,
        deletions: Deletions,
        on_swap: Callable[["SearchRelease"], None],
    ) -> None:
        self.source, self.threads, self.deletions, self.on_swap = (
            source,
            threads,
            deletions,
            on_swap,
        )
        self.loaded: LoadedRelease | None = None
        self.failure: str | None = None  # why the newest model or index is not in use
        self._logged: str | None = None  # error that is in the log
        self._key: str | None = None
        self._previous: tuple[str, LoadedRelease] | None = None

    async def refresh(self) -> None:
        """Load model and index if one of them has changed; if that fails, the present ones stay in
        use."""
        loop = asyncio.get_running_loop()
        try:
            key = await loop.run_in_executor(None, self.source.key)
            if key == self._key:
                self.failure = self._logged = None
                return
            if self._previous is not None and self._previous[0] == key:
                loaded = self._previous[1]
            else:
                loaded = LoadedRelease(
                    await loop.run_in_executor(None, self._load, key), self.threads
                )
        except NoModel as reason:
            if self.failure != str(reason):
                logger.info("no model in use", extra={"fields": {"reason": str(reason)}})
            self.loaded = self._key = self._previous = None
            self.failure = str(reason)
            return
        except (
            Exception
        ) as error:  # any damage of the files: report it, and go on with the loaded model
            if self._logged != str(error):
                logger.error("model or index not loaded", extra={"fields": {"reason": str(error)}})
            self._logged, self.failure = str(error), FAILED
            return
        if self.source.reversible and self._key is not None and self.loaded is not None:
            self._previous = self._key, self.loaded
        self._key, self.failure, self._logged, self.loaded = key, None, None, loaded
        model = loaded.release
        self.on_swap(model)
        asyncio.get_running_loop().run_in_executor(
            None, lambda: model.languages
        )  # before the page asks
        logger.info(
            "model in use",
            extra={"fields": {"model": model.version.model, "items": len(model.index)}},
        )

    def _load(self, key: str) -> "SearchRelease":
        model = self.source.load()
        if self.source.key() != key:
            raise RuntimeError("model or index were replaced while they were loaded: trying again")
        model.embedder.embed_sentences([WARM_UP])
        self.deletions.apply(model.index)
        assert model.summary is not None  # computed before the first request asks
        if "hybrid" in model.search.modes:
            model.search.keywords()
        return model

    async def watch(self, seconds: float) -> None:
        """Refresh every ``seconds`` until the task is canceled."""
        while True:
            await asyncio.sleep(seconds)
            await self.refresh()

    async def follow(self, seconds: float) -> None:
        """Load the model without waiting for it elsewhere, and ``watch``."""
        await self.refresh()
        await self.watch(seconds)
