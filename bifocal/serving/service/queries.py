"""Results of a request by one generation, whichever of them answers the client."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, TypeVar

from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from bifocal.search.hits import SearchHit
from bifocal.serving.service.live.deletions import Deletions
from bifocal.serving.service.live.reloading import Generation
from bifocal.serving.service.ranking import Query
from bifocal.serving.service.routes.uploads import check_upload
from bifocal.serving.service.schema import SearchRequest
from bifocal.serving.service.served_model import ServedModel
from bifocal.serving.service.settings import Settings

Array = NDArray[Any]
T = TypeVar("T")


@dataclass(frozen=True)
class QueryResult:
    """Results of a request.

    Attributes:
        served: that found them.
        hits: best first, without deleted items.
        more: whether there are further ones.
        found: false without a result. On the first page of a sentence in the mode "vectors", also false if the first
            result is below the threshold of the calibration.
        relevance: probability that the first result is relevant, 0 without a result; None if the query has none.
        seconds: from the query to the results.
    """

    served: ServedModel
    hits: list[SearchHit]
    more: bool
    found: bool
    relevance: float | None
    seconds: float

    @property
    def ids(self) -> list[str]:
        """Ids of the results."""
        return [hit.item_id for hit in self.hits]


class QueryRunner:
    """Searches of requests.

    Args:
        settings: limits of a request.
        deletions: items that are no result.
    """

    def __init__(self, settings: Settings, deletions: Deletions) -> None:
        self.settings, self.deletions = settings, deletions

    async def find(self, generation: Generation, request: SearchRequest, upload: bytes | None = None) -> QueryResult:
        """Return the results of a request, which may come with an image file.

        Raises:
            HTTPException: 400, 404, 409, 413 or 415 with the reason.
        """
        start, served = time.perf_counter(), generation.served
        query = await self._query(generation, request, upload)
        hits = await compute(generation.executor, served.search, query, request.k + 1, request.offset)
        live = [hit for hit in hits if hit.item_id not in self.deletions]  # deleted in the meantime
        kept, relevance, calibration = live[: request.k], None, served.index.calibration
        found = bool(kept)
        if query.sentence is not None and query.mode == "vectors" and calibration is not None:
            relevance = (kept[0].probability if kept else None) or 0.0
            found = found and (request.offset > 0 or relevance >= calibration.threshold)
        return QueryResult(served, kept, len(hits) > request.k, found, relevance, time.perf_counter() - start)

    def check(self, request: SearchRequest, upload: bytes | None) -> None:
        """Raise 400 for a request that contradicts itself or the limits."""
        words, settings = [*request.plus, *request.minus], self.settings
        if request.text is None and request.like is None and upload is None and not request.plus:
            raise HTTPException(400, "nothing to search by: give text, like, plus or an image")
        if request.mode != "vectors" and not _is_sentence(request, upload):
            raise HTTPException(400, f"the mode {request.mode} needs text, and nothing else to search by")
        if request.k > settings.max_results:
            raise HTTPException(400, f"k is {request.k}, at most {settings.max_results} are accepted")
        if request.offset + request.k > settings.max_depth:
            raise HTTPException(400, f"offset and k reach beyond the first {settings.max_depth} results")
        if len(words) > settings.max_words:
            raise HTTPException(400, f"{len(words)} sentences in plus and minus, at most {settings.max_words}")
        self.check_sentences([*words, *([] if request.text is None else [request.text])])

    def check_sentences(self, sentences: Sequence[str]) -> None:
        """Raise 400 for a sentence that is empty or too long."""
        limit = self.settings.limits.characters
        for sentence in sentences:
            if not sentence.strip():
                raise HTTPException(400, "a sentence is empty")
            if limit and len(sentence) > limit:
                raise HTTPException(400, f"a sentence has {len(sentence)} characters, at most {limit} are accepted")

    async def _query(self, generation: Generation, request: SearchRequest, upload: bytes | None) -> Query:
        """Return the query of a request.

        Raises:
            HTTPException: 409 if the collection cannot be searched in the mode.
        """
        modes = generation.served.rankings.modes
        if request.mode not in modes:
            raise HTTPException(409, f"this collection cannot be searched by {request.mode}, but by {', '.join(modes)}")
        vector = await self._vector(generation, request, upload)
        exclude = [item_id for item_id in (*self.deletions, request.like) if item_id in generation.served]
        sentence = request.text if _is_sentence(request, upload) else None
        return Query(vector, sentence, request.mode, request.where, exclude, request.group, request.per_group)

    async def _vector(self, generation: Generation, request: SearchRequest, upload: bytes | None) -> Array:
        """Return the sum of the vectors of a request; those of ``minus`` have a negative sign.

        Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6.2.
        """
        served, executor, parts = generation.served, generation.executor, []
        if upload is not None:
            await compute(executor, check_upload, upload, self.settings.limits)
            parts.append(await compute(executor, served.embed_image, upload))
        if request.like is not None:
            if request.like not in served or request.like in self.deletions:
                raise HTTPException(404, "there is no item with the id in like")
            parts.append(await compute(executor, served.index.vector, request.like))
        added = [*([] if request.text is None else [request.text]), *request.plus]
        sentences = [*added, *request.minus]
        if sentences:
            try:
                vectors = await generation.batcher.embed(sentences)
            except ValueError as error:
                raise HTTPException(400, str(error)[:1000]) from error
            parts += [*vectors[: len(added)], *(-vectors[len(added) :])]
        query: Array = sum(parts[1:], start=parts[0])
        return query


async def compute(executor: Executor, function: Callable[..., T], *arguments: Any) -> T:
    """Return the result of a function that computes, in a thread; a ``ValueError`` becomes 400."""
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, function, *arguments)
    except ValueError as error:
        raise HTTPException(400, str(error)[:1000]) from error


def _is_sentence(request: SearchRequest, upload: bytes | None) -> bool:
    """Return whether a request searches by a sentence alone."""
    return request.text is not None and request.like is None and upload is None and not request.plus + request.minus
