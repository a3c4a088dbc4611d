"""Routes outside the API: the page, health, readiness and metrics."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePath

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException

from bifocal.serving.service.handlers import Handlers
from bifocal.serving.service.schema import State

TYPES: Mapping[str, str] = {
    ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json",
}  # fmt: skip
"""Type of a file of the page by its suffix."""


def page_router() -> APIRouter:
    """Return the routes of the page; its files are read once."""
    page = files("bifocal.serving") / "page"
    # A request names an entry of this table and never a file.
    contents = {file.name: file.read_bytes() for file in page.iterdir() if file.is_file()}
    router = APIRouter(include_in_schema=False)

    def send(name: str) -> Response:
        return Response(contents[name], media_type=TYPES[PurePath(name).suffix], headers={"cache-control": "no-cache"})

    @router.get("/")
    async def index() -> Response:
        return send("index.html")

    @router.get("/page/{name}")
    async def file(name: str) -> Response:
        if name not in contents:
            raise HTTPException(404, "the page has no such file")
        return send(name)

    return router


def probe_router(handlers: Handlers) -> APIRouter:
    """Return the routes for operators."""
    router = APIRouter()

    @router.get("/healthz")
    async def health() -> State:
        """Return 200 while the process answers."""
        return State("alive")

    @router.get("/readyz")
    async def ready() -> State:
        """Return 200 once a model is loaded, and whether a newer one could not be loaded; else 503."""
        served = handlers.generation().served
        failure = handlers.reloader.failure
        return State("ready" if failure is None else f"ready with an older model: {failure}", served.version.model)

    @router.get("/metrics", response_class=Response)
    async def measurements() -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(generate_latest(handlers.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    return router
