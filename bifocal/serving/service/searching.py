"""Answers of the API: from requests to results, heatmaps and thumbnails of the generation in use."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray
from starlette.exceptions import HTTPException

from bifocal.search.index import SearchHit
from bifocal.serving.service.current import Current, Generation, Source
from bifocal.serving.service.deletions import Deletions
from bifocal.serving.service.engine import Engine
from bifocal.serving.service.observation import Metrics
from bifocal.serving.service.phrases import split_phrases
from bifocal.serving.service.ranking import Query, RegionSearchHit
from bifocal.serving.service.schema import (
    Explanation,
    Information,
    Item,
    PhraseHeatmap,
    Relevance,
    Result,
    Results,
    SearchRequest,
)
from bifocal.serving.service.settings import Settings
from bifocal.serving.service.thumbnails import Thumbnails
from bifocal.serving.service.uploads import read_upload

Array = NDArray[Any]
RELEVANT = 0.5
"""Probability from which a result is called relevant."""
T = TypeVar("T")


class Searching:
    """Search with the model and the index in use.

    Args:
        source: of models and indexes.
        settings: limits of a request.
        metrics: of the service.
        deletions: items that are in no answer.
    """

    def __init__(self, source: Source, settings: Settings, metrics: Metrics, deletions: Deletions) -> None:
        self.settings, self.metrics, self.deletions = settings, metrics, deletions
        self.executor = ThreadPoolExecutor(settings.threads, "bifocal")
        self.current = Current(source, self.executor, self._use)
        self.thumbnails = Thumbnails(max_pixels=settings.limits.pixels)

    def generation(self) -> Generation:
        """Return the generation in use; a request calls this once.

        Raises:
            HTTPException: 503 while none is loaded.
        """
        if self.current.generation is None:
            reason = self.current.failure or "the model is being loaded"
            raise HTTPException(503, f"not ready: {reason}", {"retry-after": "1"})
        return self.current.generation

    async def search(self, request: SearchRequest, upload: bytes | None = None) -> Results:
        """Return the results of a request, which may come with an image file.

        Raises:
            HTTPException: 400, 404, 413 or 415 with the reason.
        """
        generation = self.generation()
        engine = generation.engine
        self._check(request, upload)
        query = await self._query(generation, request, upload)
        hits = await self.run(engine.search, query, request.k + 1, request.offset)
        live = [hit for hit in hits if hit.item_id not in self.deletions]  # deleted in the meantime
        kept = [self._result(engine, hit) for hit in live[: request.k]]
        self.metrics.results.observe(len(kept))
        more = len(hits) > request.k and request.offset + request.k < self.settings.max_depth
        return Results(kept, self.count(engine), more, engine.version.model)

    def _use(self, engine: Engine) -> None:
        """Note that an engine came into use."""
        self.thumbnails.keep(engine)
        self.metrics.use(engine, self.count(engine))

    def count(self, engine: Engine) -> int:
        """Return the number of items that are not deleted."""
        return len(engine) - sum(item_id in engine for item_id in self.deletions)

    def information(self) -> Information:
        """Return model, columns of metadata, examples and limits."""
        engine, settings = self.generation().engine, self.settings
        description = engine.description
        examples = [example.text for example in description.examples if example.item_id not in self.deletions]
        return Information(
            model=engine.version.model, model_hash=engine.version.model_hash, items=self.count(engine),
            languages=description.languages, accepts_images=engine.accepts_images,
            explains=engine.heatmap_model is not None, deletes=settings.admin_key is not None,
            modes=engine.rankings.modes, columns=description.columns, examples=examples,
            max_results=settings.max_results, max_depth=settings.max_depth, max_image_bytes=settings.limits.image_bytes,
        )  # fmt: skip

    def item(self, item_id: str) -> Item:
        """Return an item."""
        engine = self._engine_with(item_id)
        items = engine.items
        return Item(item_id, items.captions(item_id), items.metadata(item_id), items.file(item_id) is not None)

    async def thumbnail(self, item_id: str, side: int) -> tuple[bytes, str]:
        """Return the JPEG of an item's thumbnail, and its ETag."""
        file = self._file(self._engine_with(item_id), item_id)
        picture = await self.run(self.thumbnails.get, item_id, file, side)
        self._engine_with(item_id)
        return picture, f'"{hashlib.sha256(picture).hexdigest()[:32]}"'

    async def explain(self, item_id: str, text: str) -> Explanation:
        """Return the heatmaps of the phrases of a sentence in an item's image.

        Raises:
            HTTPException: 404 without the item or its image, 409 if the model has no localizer.
        """
        self.check_sentences([text])
        engine = self._engine_with(item_id)
        if engine.heatmap_model is None:
            raise HTTPException(409, "this model has no localizer: it cannot show where a phrase is")
        file, phrases = self._file(engine, item_id), split_phrases(text)
        heatmaps = await self.run(engine.heatmaps, file, phrases)
        found = [PhraseHeatmap(*heatmap.phrase, heatmap.point, heatmap.data_url()) for heatmap in heatmaps]
        return Explanation(item_id, found)

    async def delete(self, item_id: str) -> None:
        """Delete an item from all answers, at once."""
        self._engine_with(item_id)
        try:
            await self.run(self.deletions.add, item_id)
        except OSError as error:
            raise HTTPException(503, f"deletions cannot be written: {error.strerror}") from error
        self.thumbnails.drop(item_id)
        self.metrics.items.set(self.count(self.generation().engine))

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function that computes, in a thread; a ``ValueError`` becomes 400."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.executor, function, *arguments)
        except ValueError as error:
            raise HTTPException(400, str(error)[:1000]) from error

    def _check(self, request: SearchRequest, upload: bytes | None) -> None:
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
        modes = generation.engine.rankings.modes
        if request.mode not in modes:
            raise HTTPException(409, f"this collection cannot be searched by {request.mode}, but by {', '.join(modes)}")
        vector = await self._vector(generation, request, upload)
        exclude = [item_id for item_id in (*self.deletions, request.like) if item_id in generation.engine]
        sentence = request.text if _is_sentence(request, upload) else None
        return Query(vector, sentence, request.mode, request.where, exclude, request.group, request.per_group)

    async def _vector(self, generation: Generation, request: SearchRequest, upload: bytes | None) -> Array:
        """Return the sum of the vectors of a request; those of ``minus`` have a negative sign.

        Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6.2.
        """
        engine, parts = generation.engine, []
        if upload is not None:
            encoded = await self.run(read_upload, upload, self.settings.limits)
            parts.append(await self.run(engine.embed_image, encoded))
        if request.like is not None:
            if request.like not in engine or request.like in self.deletions:
                raise HTTPException(404, "there is no item with the id in like")
            parts.append(await self.run(engine.index.vector, request.like))
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

    def _engine_with(self, item_id: str) -> Engine:
        engine = self.generation().engine
        if item_id not in engine or item_id in self.deletions:
            raise HTTPException(404, "there is no item with this id")
        return engine

    def _file(self, engine: Engine, item_id: str) -> Path:
        file = engine.items.file(item_id)
        if file is None or not file.is_file():
            raise HTTPException(404, "this machine does not have the image of this item")
        return file

    def _result(self, engine: Engine, hit: SearchHit) -> Result:
        items, probability = engine.items, hit.probability
        relevance: Relevance | None = None
        if probability is not None:
            relevance = "relevant" if probability >= RELEVANT else "maybe"
        return Result(
            hit.item_id, round(hit.score, 6), probability, relevance, items.captions(hit.item_id),
            items.metadata(hit.item_id), items.file(hit.item_id) is not None,
            hit.box if isinstance(hit, RegionSearchHit) else None,
        )  # fmt: skip


def _is_sentence(request: SearchRequest, upload: bytes | None) -> bool:
    """Return whether a request searches by a sentence alone."""
    return request.text is not None and request.like is None and upload is None and not request.plus + request.minus
