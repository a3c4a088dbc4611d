"""Routes under ``/api/v1``, and their JSON: bounded before it is parsed, and larger bodies parsed
in a thread."""

from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException

from bifocal.durable import json_text
from bifocal.search.filters import parse_conditions
from bifocal.search.query import Results
from bifocal.serving.service.bodies import API
from bifocal.serving.service.handlers import Handlers
from bifocal.serving.service.pictures import SIDES
from bifocal.serving.service.schema import (
    BrowseRequest,
    Click,
    ComparisonState,
    Correction,
    ExplainRequest,
    Explanation,
    Information,
    ItemDetails,
    ItemPage,
    SearchRequest,
    Sentence,
)
from bifocal.serving.service.turns import Turns

BINARY = "application/octet-stream"
ItemId = Annotated[str, Query(description="id of an item", min_length=1)]
IMAGE_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("image/*", BINARY)
        },
    }
}

MAX_ELEMENTS, MAX_DEPTH = 20_000, 16
"""Values and keys of a body, and levels of its lists and objects."""
SMALL = 4096
"""Bytes of a body that is parsed in the event loop: a thread takes longer."""
BRACKETS = b"[]{}"
OTHERS = bytes(set(range(256)) - set(BRACKETS))


class FailFast:
    """Annotation of a list: its validation ends at the first error, so errors need no memory."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of the list."""
        return handler(source) | {"fail_fast": True}


def parse_json(body: bytes) -> Any:
    """Return the value of a body; raise 400 for one with too many elements or levels before it is
    parsed."""
    # Within strings, backslashes and quotes of the text stand behind a backslash: what is left
    # delimits the strings.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    elements = plain.count(b'"') // 2
    if elements <= MAX_ELEMENTS:
        structure = b"".join(plain.split(b'"')[::2])
        elements = sum(structure.count(sign) for sign in (b",", b":", b"[", b"{"))
    if elements > MAX_ELEMENTS:
        raise HTTPException(400, f"the JSON has more than {MAX_ELEMENTS} elements")
    brackets = structure.translate(None, OTHERS)
    if 2 * sum(brackets.count(sign) for sign in (b"[", b"{")) < len(brackets):
        raise HTTPException(400, "the JSON closes more lists and objects than it opens")
    nesting = accumulate(1 if sign in b"[{" else -1 for sign in brackets)
    if max(nesting, default=0) > MAX_DEPTH:
        raise HTTPException(400, f"the JSON is nested in more than {MAX_DEPTH} levels")
    return from_json(body)


PARSING = Turns(1)
"""Larger bodies are parsed one at a time: each may need several times its size in memory."""


class JSONRequest(Request):
    """Request with its own parser of the body."""

    def __init__(self, request: Request, parse: Callable[[bytes], Any]) -> None:
        super().__init__(request.scope, request.receive)
        self._parse = parse

    async def json(self) -> Any:
        """Return the value of the body."""
        body = await self.body()
        return self._parse(body) if len(body) <= SMALL else await PARSING.run(self._parse, body)


class JSONRoute(APIRoute):
    """Route that parses a JSON body by ``parse_json``, a large one in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def parsed_in_thread(request: Request) -> Response:
            parse = self.parser(request)  # may change the headers
            return await handle(JSONRequest(request, parse))

        return parsed_in_thread

    def parser(self, request: Request) -> Callable[[bytes], Any]:
        """Return the function that parses the body of a request."""
        return parse_json


def api_router(handlers: Handlers) -> APIRouter:
    """Return the routes."""
    router, settings = APIRouter(prefix=API.rstrip("/"), route_class=JSONRoute), handlers.settings

    def log(request: Request, results: int, **query: Any) -> None:
        request.state.log = {"results": results, **(query if settings.log_queries else {})}

    @router.get("/info")
    async def info(request: Request) -> Information:
        """Return the facts on the page: model, columns of metadata, examples, limits."""
        return await handlers.information()

    @router.post("/search", response_model=Results)
    async def search(body: SearchRequest, request: Request) -> Response:
        """Search by a sentence, by an item, or by both with sentences added and taken away."""
        found = await handlers.search(body)
        log(
            request,
            len(found.results),
            text=body.text,
            like=body.like,
            plus=body.plus,
            minus=body.minus,
        )
        return written(found)

    @router.post("/browse", response_model=ItemPage)
    async def browse(body: BrowseRequest, request: Request) -> Response:
        """Return the items of the collection, the newest first."""
        found = await handlers.browse(body)
        log(request, len(found.results))
        return written(found)

    @router.post("/search/image", response_model=Results, openapi_extra=IMAGE_BODY)
    async def search_image(
        request: Request,
        content_type: Annotated[str, Header()] = "",
        plus: Annotated[list[Sentence] | None, Query()] = None,
        minus: Annotated[list[Sentence] | None, Query()] = None,
        where: Annotated[str, Query(description='JSON, such as {"year": {"min": 2000}}')] = "{}",
        group: Annotated[str | None, Query(min_length=1)] = None,
        per_group: Annotated[int, Query(ge=1)] = 1,
        k: Annotated[int, Query(ge=1)] = 24,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> Response:
        """Search by the image file in the body; the file is not stored."""
        _check_content_type(content_type)
        query = SearchRequest(
            plus=plus or [],
            minus=minus or [],
            where=_condition(where),
            group=group,
            per_group=per_group,
            k=k,
            offset=offset,
        )
        found = await handlers.search(query, await request.body())
        log(request, len(found.results), plus=query.plus, minus=query.minus)
        return written(found)

    @router.post("/explain")
    async def explain(body: ExplainRequest, request: Request) -> Explanation:
        """Return where the phrases of a sentence are in the image of an item."""
        found = await handlers.explain(body.id, body.text)
        log(request, len(found.phrases), text=body.text)
        return found

    @router.post("/click", status_code=204)
    async def click(body: Click) -> None:
        """Note which result of an answer the client chose; it counts once for each answer."""
        handlers.choose(body.answer, body.item)

    @router.post("/correction", status_code=204)
    async def correct(body: Correction) -> None:
        """Keep that a text describes an item, or does not; needs the admin key."""
        await handlers.correct(body.item, body.text, right=body.right)

    @router.get("/comparison")
    async def comparison() -> ComparisonState:
        """Return the state and the report of the comparison of two releases."""
        return handlers.compared()

    @router.get("/item", response_model=ItemDetails)
    async def item(id: ItemId, request: Request) -> Response:
        """Return captions, metadata and file of an item."""
        return written(handlers.item(id))

    @router.delete("/item", status_code=204)
    async def delete(id: ItemId) -> None:
        """Delete an item from vectors, thumbnails and index; needs the admin key."""
        await handlers.delete(id)

    @router.get(
        "/original", response_class=FileResponse, responses={200: {"content": {"image/*": {}}}}
    )
    async def original(id: ItemId, request: Request) -> FileResponse:
        """Return the image file of an item as it is, with its EXIF data; 403 if the service sends
        no originals."""
        file, kind = await handlers.original(id)
        name = handlers.item(id).name
        headers = {"cache-control": "private, no-cache"}
        # The open file, which another one at its place does not replace; the task keeps it open.
        return FileResponse(
            f"/dev/fd/{file.fileno()}",
            headers=headers,
            media_type=kind,
            filename=name,
            content_disposition_type="inline",
            background=BackgroundTask(file.close),
        )

    @router.get(
        "/thumbnail",
        response_class=Response,
        responses={200: {"content": {"image/jpeg": {}}}, 304: {}},
    )
    async def thumbnail(
        id: ItemId,
        request: Request,
        side: Annotated[int, Query(description=f"longer side in pixels, one of {SIDES}")] = SIDES[
            0
        ],
        if_none_match: Annotated[str, Header()] = "",
    ) -> Response:
        """Return a small picture of an item, without the metadata of its file."""
        if side not in SIDES:
            raise HTTPException(
                400, f"side is {side}, expected one of {', '.join(map(str, SIDES))}"
            )
        picture, tag = await handlers.thumbnail(id, side)
        # A browser asks again each time, because the item may have been deleted.
        headers = {"etag": tag, "cache-control": "private, no-cache"}
        known = {entry.strip().removeprefix("W/") for entry in if_none_match.split(",")}
        if known & {tag, "*"}:
            return Response(status_code=304, headers=headers)
        return Response(picture, media_type="image/jpeg", headers=headers)

    return router


def written(found: Results | ItemPage | ItemDetails) -> Response:
    """Return an answer as JSON. FastAPI would validate it first, which takes longer than the
    search."""
    answer = found.to_json() if isinstance(found, Results) else found
    content = json_text(answer, safe=True, separators=(",", ":"))
    return Response(content, media_type="application/json")


def _check_content_type(content_type: str) -> None:
    """Raise 415 unless a header ``Content-Type`` names an image or binary data."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind != BINARY and not kind.startswith("image/"):
        raise HTTPException(
            415, f"the body must be an image file: send Content-Type image/jpeg or {BINARY}"
        )


def _condition(where: str) -> dict[str, Any]:
    try:
        return parse_conditions(where)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
