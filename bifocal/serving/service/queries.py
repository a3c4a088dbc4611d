"""Results of a request by one generation, whichever of them answers the client."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from bifocal.onnx.images import MAX_BYTES
from bifocal.onnx.pixels import DecodedImage, decode_pixels
from bifocal.search.hits import SearchHit
from bifocal.search.query import Query
from bifocal.serving.service.live.decoding import Decoders
from bifocal.serving.service.live.deletions import Deletions
from bifocal.serving.service.live.reloading import Generation
from bifocal.serving.service.requests import BrowseRequest, SearchRequest
from bifocal.serving.service.served_model import ServedModel
from bifocal.serving.service.settings import Settings

T = TypeVar("T")
SMALL = 1_000_000
"""Numbers in the vectors of an index that is searched in the event loop: a thread takes longer."""


@dataclass(frozen=True)
class QueryResult:
    """Results of a request."""

    served: ServedModel  # that found them
    hits: list[SearchHit]  # without deleted items
    more: bool  # whether there are further ones
    found: bool  # see ``bifocal.search.Results``
    relevance: float | None
    unknown: list[str]  # words that the model does not know
    seconds: float

    @property
    def ids(self) -> list[str]:
        """Ids of the results."""
        return [hit.item_id for hit in self.hits]


class QueryRunner:
    """Searches of requests."""

    def __init__(self, settings: Settings, deletions: Deletions, decoders: Decoders) -> None:
        self.settings, self.deletions, self.decoders = settings, deletions, decoders

    async def find(
        self, generation: Generation, request: SearchRequest, upload: bytes | None = None, *, in_thread: bool = False
    ) -> QueryResult:
        """Return the results of a request, which may come with an image file.

        Args:
            in_thread: also search a small index in a thread, so that a slow candidate delays no other request.
        """
        start, served = time.perf_counter(), generation.served
        self.deletions.read_file()
        query = await self._query(generation, request, upload)
        small = query.mode == "vectors" and query.group is None and len(served) * query.vector.size <= SMALL
        results = await compute(
            None if small and not in_thread else generation.executor,
            served.search.rank,
            query,
            request.k + 1,
            request.offset,
        )
        kept = [hit for hit in results if hit.item_id not in self.deletions][: request.k]  # deleted in the meantime
        seconds = time.perf_counter() - start
        return QueryResult(
            served,
            kept,
            len(results) > request.k,
            results.found and bool(kept),
            results.relevance,
            results.unknown,
            seconds,
        )

    async def browse(self, generation: Generation, request: BrowseRequest) -> tuple[list[str], int]:
        """Return the ids of a page of the collection, and the number of items that fulfill the filter."""
        self._check_count(request.k)
        return await compute(generation.executor, self._newest, generation.served, request)

    def _newest(self, served: ServedModel, request: BrowseRequest) -> tuple[list[str], int]:
        rows, index = served.newest, served.index
        allowed = index.allowed(request.where, without=self._deleted(served))
        rows = rows if allowed is None else rows[allowed[rows]]
        page = rows[request.offset : request.offset + request.k]
        return [index.ids[row] for row in page.tolist()], len(rows)

    def _deleted(self, served: ServedModel) -> NDArray[np.bool_] | None:
        """Return the mask (N,) of the deleted items; None without deletions."""
        deleted = self.deletions.rows(served.index)
        return deleted.mask if deleted.count else None

    def check(self, request: SearchRequest, upload: bytes | None) -> None:
        """Raise 400 for a request that contradicts itself or the limits."""
        words, settings = [*request.plus, *request.minus], self.settings
        self._check_count(request.k)
        if request.offset + request.k > settings.max_depth:
            raise HTTPException(400, f"offset and k reach beyond the first {settings.max_depth} results")
        if len(words) > settings.max_words:
            raise HTTPException(400, f"{len(words)} sentences in plus and minus, at most {settings.max_words}")
        self.check_sentences([*words, *([] if request.text is None else [request.text])])

    def _check_count(self, k: int) -> None:
        if k > self.settings.max_results:
            raise HTTPException(400, f"k is {k}, at most {self.settings.max_results} are accepted")

    def check_sentences(self, sentences: Sequence[str]) -> None:
        """Raise 400 for a sentence that is empty or too long."""
        limit = self.settings.limits.characters
        for sentence in sentences:
            if not sentence.strip():
                raise HTTPException(400, "a sentence is empty")
            if limit and len(sentence) > limit:
                raise HTTPException(400, f"a sentence has {len(sentence)} characters, at most {limit} are accepted")

    async def decode(self, served: ServedModel, upload: bytes) -> DecodedImage:
        """Return the pixels of an image file that a client sent; raise 400, 413 or 415 for another file."""
        if not served.accepts_images:
            raise HTTPException(409, "this model reads published features, not image files: search by a sentence")
        if not upload:
            raise HTTPException(400, "the body is empty: send an image file")
        limits = self.settings.limits
        size = limits.pixels or None, limits.image_bytes or MAX_BYTES
        return await self.decoders.run(decode_pixels, upload, served.embedder.preprocessing, *size)

    async def _query(self, generation: Generation, request: SearchRequest, upload: bytes | None) -> Query:
        """Return the query of a request."""
        served, executor = generation.served, generation.executor
        modes, images = served.search.modes, []
        if request.mode not in modes:
            raise HTTPException(409, f"this collection cannot be searched by {request.mode}, but by {', '.join(modes)}")
        if upload is not None:
            decoded = await self.decode(served, upload)
            images.append((await compute(executor, served.embedder.embed_pixels, [decoded.pixels]))[0])
        if request.like is not None:
            if request.like not in served or request.like in self.deletions:
                raise HTTPException(404, "there is no item with the id in like")
            images.append(await compute(executor, served.index.vector, request.like))
        exclude = [] if request.like is None else [request.like]
        sentences = [*([] if request.text is None else [request.text]), *request.plus, *request.minus]
        try:
            texts = await generation.batcher.embed(sentences) if sentences else np.zeros((0, 0), np.float32)
            return Query.of(
                request.text, request.plus, request.minus, images, texts, mode=request.mode, where=request.where,
                exclude=exclude, without=self._deleted(served), group=request.group, per_group=request.per_group,
                unknown=served.search.unknown_words(sentences, request.mode),
            )  # fmt: skip
        except ValueError as error:
            raise HTTPException(400, str(error)[:1000]) from error


async def compute(executor: Executor | None, function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function that computes, in a thread of an executor; a ``ValueError`` becomes 400."""
    try:
        if executor is None:
            return function(*arguments)
        return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
    except ValueError as error:
        raise HTTPException(400, str(error)[:1000]) from error
