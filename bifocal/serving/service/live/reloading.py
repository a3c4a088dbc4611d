"""The served model in use, and its replacement while requests are answered."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from bifocal.serving.service.live.batching import SentenceBatcher
from bifocal.serving.service.served_model import ServedModel

logger = logging.getLogger(__name__)
WARM_UP = "a dog"
FAILED = "the newest model or index could not be loaded: see the log of the service"
"""Reason for probes, which need no key: errors may have addresses with passwords, and paths."""


class NoModel(Exception):
    """The source offers no model now; the message is the reason."""


class ModelSource(Protocol):
    """Where models and indexes come from: a run folder, or a registry."""

    @property
    def reversible(self) -> bool:
        """Whether a previous key may come back: the previous served model then stays loaded."""

    def key(self) -> str:
        """Return a text that changes with the model or the index, or raise ``NoModel``; called every few seconds."""

    def load(self) -> ServedModel:
        """Return the model with its index."""


@dataclass(frozen=True)
class Generation:
    """A served model with its batches of sentences and its threads; a request keeps the one it started with."""

    served: ServedModel
    batcher: SentenceBatcher
    executor: Executor


class Reloader:
    """The generation in use; a reversible source keeps the former model in memory, to roll back without loading."""

    def __init__(self, source: ModelSource, executor: Executor, on_swap: Callable[[ServedModel], None]) -> None:
        self.source, self.executor, self.on_swap = source, executor, on_swap
        self.generation: Generation | None = None
        self.failure: str | None = None  # why the newest model or index is not in use
        self._logged: str | None = None  # error that is in the log
        self._key: str | None = None
        self._previous: tuple[str, Generation] | None = None

    async def refresh(self) -> None:
        """Load model and index if one of them has changed; if that fails, the present ones stay in use."""
        loop = asyncio.get_running_loop()
        try:
            key = await loop.run_in_executor(None, self.source.key)
            if key == self._key:
                self.failure = self._logged = None
                return
            if self._previous is not None and self._previous[0] == key:
                generation = self._previous[1]
            else:
                served = await loop.run_in_executor(None, self._load, key)
                batcher = SentenceBatcher(served.embed_sentences, self.executor)
                generation = Generation(served, batcher, self.executor)
        except NoModel as reason:
            if self.failure != str(reason):
                logger.info("no model in use", extra={"fields": {"reason": str(reason)}})
            self.generation = self._key = self._previous = None
            self.failure = str(reason)
            return
        except Exception as error:  # any damage of the files: report it, and go on with the loaded model
            if self._logged != str(error):
                logger.error("model or index not loaded", extra={"fields": {"reason": str(error)}})
            self._logged, self.failure = str(error), FAILED
            return
        if self.source.reversible and self._key is not None and self.generation is not None:
            self._previous = self._key, self.generation
        self._key, self.failure, self._logged, self.generation = key, None, None, generation
        served = generation.served
        self.on_swap(served)
        asyncio.get_running_loop().run_in_executor(None, lambda: served.description.languages)  # before the page asks
        logger.info("model in use", extra={"fields": {"model": served.version.model, "items": len(served)}})

    def _load(self, key: str) -> ServedModel:
        served = self.source.load()
        if self.source.key() != key:
            raise RuntimeError("model or index were replaced while they were loaded: trying again")
        served.embed_sentences([WARM_UP])
        assert served.description is not None  # computed before the first request asks
        return served

    async def watch(self, seconds: float) -> None:
        """Refresh every ``seconds`` until the task is canceled."""
        while True:
            await asyncio.sleep(seconds)
            await self.refresh()

    async def follow(self, seconds: float) -> None:
        """Load the model without waiting for it elsewhere, and ``watch``."""
        await self.refresh()
        await self.watch(seconds)
