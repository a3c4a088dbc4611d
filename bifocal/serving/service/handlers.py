"""Answers of the service: from requests to results, heatmaps and thumbnails of the models in
use."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from io import BufferedReader
from typing import Any, TypeVar

import numpy as np
from starlette.exceptions import HTTPException

from bifocal.datasets.corrections import add_correction
from bifocal.onnx.image_limits import MAX_BYTES
from bifocal.onnx.images import UPLOADS
from bifocal.onnx.pixels import DecodedImage, decode_pixels
from bifocal.onnx.pointing.phrases import split_phrases
from bifocal.search.price import QUICK, check_price, filter_price
from bifocal.search.query import EncodedQuery, ItemFacts, Results
from bifocal.serving.service.candidate import Candidate, Comparison, ComparisonCollector
from bifocal.serving.service.live import Deletions, LoadedRelease, ModelSource, Reloader
from bifocal.serving.service.models import SearchRelease
from bifocal.serving.service.observation import Metrics
from bifocal.serving.service.pictures import (
    Decoders,
    NoImageError,
    ThumbnailCache,
    decode_quick,
    file_state,
    media_type,
    opened,
    read_opened,
    refusal,
)
from bifocal.serving.service.schema import (
    BrowseRequest,
    ComparisonState,
    Explanation,
    Information,
    ItemDetails,
    ItemPage,
    SearchRequest,
)
from bifocal.serving.service.settings import Settings
from bifocal.serving.service.turns import Threads, Turns

T = TypeVar("T")
MAX_LETTERS = 500_000
"""Characters of all sentences of a request."""
WRITE_SECONDS = 10
"""Time for a deletion: a registry may be slow, and its client waits no longer."""
SMALL = 1_000_000
"""Numbers in the vectors of an index that is searched in the event loop: a thread takes longer."""


class Handlers:
    """Searches, heatmaps and pictures by the model in use, or by a candidate for its share of the
    clients."""

    def __init__(
        self,
        source: ModelSource,
        settings: Settings,
        metrics: Metrics,
        deletions: Deletions,
        candidate: Candidate | None = None,
    ) -> None:
        self.settings, self.metrics, self.deletions = settings, metrics, deletions
        self.threads, self._registry = Threads(settings.threads), Turns(1)
        self.reloader = Reloader(source, self.threads, deletions, self._use)
        limits = settings.limits
        # A large file of a client delays no small one, and neither the pictures of the page.
        self.uploads, self.large_uploads, self.pictures = (
            Decoders(settings.decoders, limits.decode_seconds, limits.decoded_bytes)
            for _ in range(3)
        )
        self.comparison: Comparison | None = None
        if candidate is not None:
            self.comparison = Comparison(
                candidate, self.reloader, self.find, self.threads, deletions
            )
            metrics.registry.register(ComparisonCollector(self.comparison))
        self.thumbnails = ThumbnailCache(self.pictures.run)

    def loaded(self) -> LoadedRelease:
        """Return the model in use, or answer 503; a request calls this first, so that its index
        knows the deletions of other processes."""
        self.deletions.read_file()
        if self.reloader.loaded is None:
            reason = self.reloader.failure or "the model is being loaded"
            raise HTTPException(503, f"not ready: {reason}", {"retry-after": "1"})
        return self.reloader.loaded

    def release(self) -> SearchRelease:
        """Return the model that answers a client: with a canary, a share of the clients have the
        candidate."""
        loaded = self.loaded()
        candidate = None if self.comparison is None else self.comparison.candidate()
        return (candidate or loaded).release

    async def search(self, request: SearchRequest, upload: bytes | None = None) -> Results:
        """Return the results of a request, which may come with an image file."""
        self._check(request)
        loaded = self.loaded()
        if self.comparison is None:
            results = await self.find(loaded, request, upload)
        else:
            results = await self.comparison.find(loaded, request, upload)
        self.metrics.results.observe(len(results.results))
        self.metrics.nothing_found.inc(request.offset == 0 and not results.found)
        return results

    async def find(
        self,
        loaded: LoadedRelease,
        request: SearchRequest,
        upload: bytes | None = None,
        *,
        in_thread: bool = False,
    ) -> Results:
        """Return the results of a request by one model.

        Args:
            in_thread: also search a small index in a thread, so that a slow candidate delays no
                other request.
        """
        search, threads = loaded.release.search, loaded.threads
        try:
            query = await self._query(loaded, request, upload)
            small = query.mode == "vectors" and query.group is None and not query.where
            size = search.index.description.count * query.vector.size
            if small and size <= SMALL and not in_thread:
                results = search.rank(query, request.k, request.offset)
            else:
                steps = await threads.searches.run(search.price, query)
                lane = threads.searches if steps <= QUICK else threads.others
                ranked = await lane.run(search.rank, query, request.k, request.offset)
                results = search.keep_present(ranked)
        except ValueError as error:
            raise HTTPException(400, str(error)[:1000]) from error
        results.more = results.more and request.offset + request.k < self.settings.max_depth
        results.model = loaded.release.version.model
        return results

    async def _query(
        self, loaded: LoadedRelease, request: SearchRequest, upload: bytes | None
    ) -> EncodedQuery:
        """Return the query of a request."""
        model, threads = loaded.release, loaded.threads
        modes, images = model.search.modes, []
        if request.mode not in modes:
            raise HTTPException(
                409,
                f"this collection cannot be searched by {request.mode}, but by {', '.join(modes)}",
            )
        if upload is not None:
            decoded = await self.decode(model, upload)
            images.append(
                (await threads.others.run(model.embedder.embed_pixels, [decoded.pixels]))[0]
            )
        if request.like is not None:
            if request.like not in model.index:
                raise HTTPException(404, "there is no item with the id in like")
            images.append(await threads.searches.run(model.index.vector, request.like))
        exclude = [] if request.like is None else [request.like]
        sentences = [
            *([] if request.text is None else [request.text]),
            *request.plus,
            *request.minus,
        ]
        texts = await loaded.embed(sentences) if sentences else np.zeros((0, 0), np.float32)
        return EncodedQuery.of(
            request.text,
            request.plus,
            request.minus,
            images,
            texts,
            mode=request.mode,
            where=request.where,
            exclude=exclude,
            group=request.group,
            per_group=request.per_group,
            unknown=model.search.unknown_words(sentences, request.mode),
        )

    def _check(self, request: SearchRequest) -> None:
        """Raise 400 for a request that contradicts the limits."""
        words, settings = [*request.plus, *request.minus], self.settings
        self._check_count(request.k)
        if request.offset + request.k > settings.max_depth:
            raise HTTPException(
                400, f"offset and k reach beyond the first {settings.max_depth} results"
            )
        if len(words) > settings.max_words:
            raise HTTPException(
                400, f"{len(words)} sentences in plus and minus, at most {settings.max_words}"
            )
        self.check_sentences([*words, *([] if request.text is None else [request.text])])

    def _check_count(self, k: int) -> None:
        if k > self.settings.max_results:
            raise HTTPException(400, f"k is {k}, at most {self.settings.max_results} are accepted")

    def check_sentences(self, sentences: Sequence[str]) -> None:
        """Raise 400 for a sentence that is empty or too long."""
        limit, total = self.settings.limits.characters, sum(map(len, sentences))
        if total > MAX_LETTERS:
            raise HTTPException(
                400, f"the sentences have {total} characters, at most {MAX_LETTERS} are accepted"
            )
        for sentence in sentences:
            if not sentence.strip():
                raise HTTPException(400, "a sentence is empty")
            if limit and len(sentence) > limit:
                raise HTTPException(
                    400, f"a sentence has {len(sentence)} characters, at most {limit} are accepted"
                )

    async def decode(self, model: SearchRelease, upload: bytes) -> DecodedImage:
        """Return the pixels of an image file that a client sent; raise 400, 413 or 415 for another
        file."""
        if not model.accepts_images:
            raise HTTPException(
                409, "this model reads published features, not image files: search by a sentence"
            )
        if not upload:
            raise HTTPException(400, "the body is empty: send an image file")
        limits = self.settings.limits
        most = limits.pixels or None, limits.image_bytes or MAX_BYTES, UPLOADS
        arguments = upload, model.embedder.preprocessing, *most
        if (decoded := await self.uploads.run(decode_quick, *arguments)) is not None:
            return decoded
        return await self.large_uploads.run(decode_pixels, *arguments)

    async def browse(self, request: BrowseRequest) -> ItemPage:
        """Return a page of the collection, the newest first."""
        release = self.release()
        items = release.index.items
        self._check_count(request.k)
        steps = await self.run(lambda: check_price(filter_price(items, request.where), items))
        lane = self.threads.searches if steps <= QUICK else self.threads.others
        rows = await lane.run(release.newest, request.where)
        end = request.offset + request.k
        items = [
            ItemFacts(**release.items.facts(row)) for row in rows[request.offset : end].tolist()
        ]
        return ItemPage(items, len(rows), end < len(rows))

    def _use(self, model: SearchRelease) -> None:
        """Note that a model came into use."""
        self.thumbnails.keep(model.index)
        self.metrics.use(model.version.model, model.version.model_hash, len(model.index))

    async def information(self) -> Information:
        """Return model, columns of metadata, examples and limits."""
        model, settings = self.release(), self.settings
        summary = model.summary
        languages = await asyncio.to_thread(lambda: model.languages)
        return Information(
            model=model.version.model,
            model_hash=model.version.model_hash,
            items=len(model.index),
            languages=languages,
            accepts_images=model.accepts_images,
            explains=model.pointer is not None,
            originals=settings.originals,
            deletes=settings.admin_key is not None,
            corrects=settings.admin_key is not None and settings.corrections is not None,
            modes=model.search.modes,
            columns=summary.columns,
            examples=[
                example.text for example in summary.examples if example.item_id in model.index
            ],
            max_results=settings.max_results,
            max_depth=settings.max_depth,
            max_image_bytes=settings.limits.image_bytes,
        )

    def item(self, item_id: str) -> ItemDetails:
        """Return an item."""
        model, row = self._row(item_id)
        try:
            size = file_state(model.items.opener(row)).st_size
        except NoImageError:
            size = None
        return ItemDetails(**model.items.facts(row), bytes=size)

    async def original(self, item_id: str) -> tuple[BufferedReader, str]:
        """Return the open image file of an item, and its media type."""
        if not self.settings.originals:
            raise HTTPException(403, "this service sends no original files")
        model, row = self._row(item_id)
        try:
            file = await asyncio.to_thread(opened, model.items.opener(row))
        except NoImageError as error:
            raise refusal(error) from error
        return file, await self.run(media_type, file)

    async def thumbnail(self, item_id: str, side: int) -> tuple[bytes, str]:
        """Return the JPEG of an item's thumbnail, and its ETag."""
        model, row = self._row(item_id)
        picture = await self.thumbnails.get(item_id, model.items.opener(row), side)
        self._row(item_id)  # it may have been deleted in the meantime
        return picture, f'"{hashlib.sha256(picture).hexdigest()[:32]}"'

    async def explain(self, item_id: str, text: str) -> Explanation:
        """Return the heatmaps of the phrases of a sentence in an item's image."""
        self.check_sentences([text])
        model, row = self._row(item_id)
        if model.pointer is None:
            raise HTTPException(409, "this model cannot show where a phrase is")
        file, phrases = model.items.opener(row), split_phrases(text)
        decoded = await self.pictures.run(read_opened, model.pointer.decoder, file)
        found = await self.threads.others.run(model.heatmaps, decoded, phrases)
        return Explanation(item_id, found)

    async def delete(self, item_id: str) -> None:
        """Delete an item from all answers, at once."""
        candidate = None if self.comparison is None else self.comparison.reloader.loaded
        self.loaded()
        if candidate is None or item_id not in candidate.release.index:
            self._row(item_id)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._registry.run(self.deletions.add, item_id)
        except TimeoutError as error:
            raise HTTPException(
                503, f"the deletion was not written in {WRITE_SECONDS} s: delete it again"
            ) from error
        except OSError as error:
            raise HTTPException(503, f"deletions cannot be written: {error.strerror}") from error
        self.thumbnails.drop(item_id)
        self.metrics.items.set(len(self.loaded().release.index))

    async def correct(self, item_id: str, text: str, *, right: bool) -> None:
        """Keep what a person says about an item, for the next training."""
        if self.settings.corrections is None:
            raise HTTPException(403, "this service keeps no corrections: see --corrections")
        self._row(item_id)
        try:
            await asyncio.to_thread(
                add_correction, self.settings.corrections, item_id, text, right=right
            )
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        except OSError as error:
            raise HTTPException(503, f"corrections cannot be written: {error.strerror}") from error

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a function that computes, in a thread; a ``ValueError`` becomes
        400."""
        return await self.threads.searches.run(function, *arguments)

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

    def _row(self, item_id: str) -> tuple[SearchRelease, int]:
        """Return the model that answers a client, and the row of an item; raise 404 if it has
        none."""
        model = self.release()
        try:
            return model, model.index.row(item_id)
        except ValueError as error:
            raise HTTPException(404, "there is no item with this id") from error
