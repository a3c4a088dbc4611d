"""Answers of the API: from requests to results, heatmaps and thumbnails of the generation in use."""

import asyncio
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

from bifocal.onnx.pointing.phrases import split_phrases
from bifocal.search.hits import SearchHit
from bifocal.serving.service.candidate import Candidate, Comparison
from bifocal.serving.service.candidate_metrics import ComparisonCollector
from bifocal.serving.service.live.decoding import Decoders
from bifocal.serving.service.live.deletions import Deletions
from bifocal.serving.service.live.reloading import Generation, ModelSource, Reloader
from bifocal.serving.service.live.thumbnails import Thumbnails, media_type
from bifocal.serving.service.observation import Metrics
from bifocal.serving.service.queries import QueryRunner, compute
from bifocal.serving.service.requests import BrowseRequest, SearchRequest
from bifocal.serving.service.schema import (
    ComparisonState,
    Explanation,
    Information,
    Item,
    ItemDetails,
    Page,
    PhraseHeatmap,
    Result,
    Results,
)
from bifocal.serving.service.served_model import ServedModel
from bifocal.serving.service.settings import Settings

T = TypeVar("T")


class Handlers:
    """Search with the model and the index in use."""

    def __init__(
        self, source: ModelSource, settings: Settings, metrics: Metrics, deletions: Deletions,
        candidate: Candidate | None = None,
    ) -> None:  # fmt: skip
        self.settings, self.metrics, self.deletions = settings, metrics, deletions
        self.executor = ThreadPoolExecutor(settings.threads, "bifocal")
        self.reloader = Reloader(source, self.executor, self._use)
        limits = settings.limits
        # A file of a client that is decoded for long delays other files of clients, but not the pictures of the page.
        self.uploads, self.pictures = (
            Decoders(settings.decoders, limits.decode_seconds, limits.decoded_bytes) for _ in range(2)
        )
        self.runner = QueryRunner(settings, deletions, self.uploads)
        self.comparison: Comparison | None = None
        if candidate is not None:
            self.comparison = Comparison(candidate, self.reloader, self.runner, self.executor)
            metrics.registry.register(ComparisonCollector(self.comparison))
        self.thumbnails = Thumbnails(self.pictures.run, max_pixels=limits.pixels or None)

    def generation(self) -> Generation:
        """Return the generation in use, or answer 503; a request calls this once."""
        if self.reloader.generation is None:
            reason = self.reloader.failure or "the model is being loaded"
            raise HTTPException(503, f"not ready: {reason}", {"retry-after": "1"})
        return self.reloader.generation

    def generation_for(self, client: str) -> Generation:
        """Return the generation that answers a client: with a canary, a share of the clients have the candidate."""
        candidate = None if self.comparison is None else self.comparison.generation(client)
        return candidate or self.generation()

    async def search(self, request: SearchRequest, upload: bytes | None = None, client: str = "") -> Results:
        """Return the results of a request, which may come with an image file."""
        generation, answer = self.generation(), None
        self.runner.check(request, upload)
        if self.comparison is None:
            found = await self.runner.find(generation, request, upload)
        else:
            found, answer = await self.comparison.find(generation, request, upload, client)
        self.metrics.results.observe(len(found.hits))
        self.metrics.nothing_found.inc(request.offset == 0 and not found.found)
        more = found.more and request.offset + request.k < self.settings.max_depth
        results = [self._result(found.served, hit) for hit in found.hits]
        return Results(
            results, found.found, self.count(found.served), more, found.served.version.model, found.unknown, answer
        )

    async def browse(self, request: BrowseRequest, client: str = "") -> Page:
        """Return a page of the collection, the newest first."""
        generation = self.generation_for(client)
        ids, count = await self.runner.browse(generation, request)
        found = [Item(**generation.served.items.facts(item_id)) for item_id in ids]
        return Page(found, count, request.offset + len(ids) < count)

    def _use(self, served: ServedModel) -> None:
        """Note that a served model came into use."""
        self.thumbnails.keep(served)
        self.metrics.use(served, self.count(served))

    def count(self, served: ServedModel) -> int:
        """Return the number of items that are not deleted."""
        return len(served) - self.deletions.rows(served.index).count

    async def information(self, client: str = "") -> Information:
        """Return model, columns of metadata, examples and limits."""
        served, settings = self.generation_for(client).served, self.settings
        description = served.description
        languages = await asyncio.to_thread(lambda: description.languages)
        examples = [example.text for example in description.examples if example.item_id not in self.deletions]
        return Information(
            model=served.version.model, model_hash=served.version.model_hash, items=self.count(served),
            languages=languages, accepts_images=served.accepts_images,
            explains=served.pointer is not None, originals=settings.originals, deletes=settings.admin_key is not None,
            modes=served.search.modes, columns=description.columns, examples=examples,
            max_results=settings.max_results, max_depth=settings.max_depth, max_image_bytes=settings.limits.image_bytes,
        )  # fmt: skip

    def item(self, item_id: str, client: str = "") -> ItemDetails:
        """Return an item."""
        items = self._served_with(item_id, client).items
        file = items.file(item_id)
        size = file.stat().st_size if file is not None and file.is_file() else None
        return ItemDetails(**items.facts(item_id), bytes=size)

    async def original(self, item_id: str, client: str = "") -> tuple[Path, str]:
        """Return the image file of an item, and its media type."""
        if not self.settings.originals:
            raise HTTPException(403, "this service sends no original files")
        file = self._file(self._served_with(item_id, client), item_id)
        return file, await self.run(media_type, file)

    async def thumbnail(self, item_id: str, side: int, client: str = "") -> tuple[bytes, str]:
        """Return the JPEG of an item's thumbnail, and its ETag."""
        file = self._file(self._served_with(item_id, client), item_id)
        picture = await self.thumbnails.get(item_id, file, side)
        self._served_with(item_id, client)
        return picture, f'"{hashlib.sha256(picture).hexdigest()[:32]}"'

    async def explain(self, item_id: str, text: str, client: str = "") -> Explanation:
        """Return the heatmaps of the phrases of a sentence in an item's image."""
        self.runner.check_sentences([text])
        served = self._served_with(item_id, client)
        if served.pointer is None:
            raise HTTPException(409, "this model cannot show where a phrase is")
        file, phrases = self._file(served, item_id), split_phrases(text)
        decoded = await self.pictures.run(served.pointer.decoder, await self.run(file.read_bytes))
        heatmaps = await self.run(served.heatmaps, decoded, phrases)
        found = [
            PhraseHeatmap(*place.phrase, place.point, place.data_url(), place.probability)
            if place.present
            else PhraseHeatmap(*place.phrase, None, None, place.probability)
            for place in heatmaps
        ]
        return Explanation(item_id, found)

    async def delete(self, item_id: str) -> None:
        """Delete an item from all answers, at once."""
        candidate = None if self.comparison is None else self.comparison.reloader.generation
        if candidate is None or item_id not in candidate.served or item_id in self.deletions:
            self._served_with(item_id, "")
        try:
            await self.run(self.deletions.add, item_id)
        except OSError as error:
            raise HTTPException(503, f"deletions cannot be written: {error.strerror}") from error
        self.thumbnails.drop(item_id)
        self.metrics.items.set(self.count(self.generation().served))

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function that computes, in a thread; a ``ValueError`` becomes 400."""
        return await compute(self.executor, function, *arguments)

    def choose(self, answer: str, item_id: str) -> None:
        """Note that the client of an answer chose a result."""
        if self.comparison is None or not self.comparison.answers.choose(answer, item_id):
            raise HTTPException(404, "there is no such answer with this item: it may be too old")

    def compared(self) -> ComparisonState:
        """Return the state and the report of the comparison."""
        compared = self.comparison
        if compared is None:
            raise HTTPException(404, "this service compares no second release")
        report = None if compared.report is None else compared.report.to_json()
        return ComparisonState(compared.mode, compared.share, compared.state, report)

    def _served_with(self, item_id: str, client: str) -> ServedModel:
        served = self.generation_for(client).served
        self.deletions.read_file()
        if item_id not in served or item_id in self.deletions:
            raise HTTPException(404, "there is no item with this id")
        return served

    def _file(self, served: ServedModel, item_id: str) -> Path:
        file = served.items.file(item_id)
        if file is None or not file.is_file():
            raise HTTPException(404, "this machine does not have the image of this item")
        return file

    def _result(self, served: ServedModel, hit: SearchHit) -> Result:
        facts = served.items.facts(hit.item_id)
        return Result(
            **facts, score=round(hit.score, 6), probability=hit.probability, relevance=hit.relevance, box=hit.box
        )
