"""ASGI app of the service, with the routes outside the API: the page, health, readiness and
metrics."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import PurePath
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from bifocal.durable import json_text
from bifocal.serving.service.admission import CLIENT, Admission, error_response
from bifocal.serving.service.api import api_router
from bifocal.serving.service.bodies import API
from bifocal.serving.service.candidate import Candidate
from bifocal.serving.service.handlers import Handlers
from bifocal.serving.service.inference import inference_router
from bifocal.serving.service.live import Deletions, ModelSource
from bifocal.serving.service.observation import Metrics
from bifocal.serving.service.schema import Error, ServiceState
from bifocal.serving.service.settings import Settings

ERRORS: Mapping[int, str] = {
    400: "The request is wrong.",
    401: "The key is missing or wrong.",
    403: "The key may not do this.",
    404: "There is no such item.",
    408: "The body was too slow.",
    409: "The model cannot do this.",
    413: "The body or the image is too large.",
    415: "The body has another type.",
    429: "Too many requests.",
    503: "No model is loaded.",
}

TYPES: Mapping[str, str] = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
}
"""Type of a file of the page by its suffix."""


def create_app(
    source: ModelSource,
    settings: Settings,
    deletions: Deletions | None = None,
    poll_seconds: float = 5.0,
    candidate: Candidate | None = None,
) -> FastAPI:
    """Return the ASGI app of the service."""
    metrics = Metrics()
    handlers = Handlers(source, settings, metrics, deletions or Deletions(), candidate)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await handlers.reloader.refresh()
        tasks = [handlers.reloader.watch(poll_seconds)]
        if handlers.comparison is not None:
            tasks += [
                handlers.comparison.reloader.follow(poll_seconds),
                handlers.comparison.run_repeats(),
            ]
        running = [asyncio.create_task(task) for task in tasks]
        yield
        for task in running:
            task.cancel()
        if handlers.comparison is not None:
            handlers.comparison.close()
        handlers.threads.close()

    answers: dict[int | str, dict[str, Any]] = {
        status: {"model": Error, "description": text} for status, text in ERRORS.items()
    }
    app = FastAPI(
        title="Bifocal search",
        version="1",
        description="Search images by sentences and images, and see where.",
        lifespan=lifespan,
        responses=answers,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in (
        api_router(handlers),
        inference_router(handlers),
        probe_router(handlers),
        page_router(),
    ):
        app.include_router(router)

    @cache
    def document() -> bytes:
        content = app.openapi()
        for methods in content["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)  # a wrong request is answered with 400
        return json_text(content, separators=(",", ":")).encode()

    @app.get(f"{API}openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(document(), media_type=TYPES[".json"])

    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(Admission, settings=settings, metrics=metrics)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["authorization", "content-type", CLIENT],
    )
    return app


async def _bad_request(request: Request, error: Exception) -> JSONResponse:
    """Answer 400 with the first error of the validation, without the client's input."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"][1:])
    return error_response(400, f"{place[:100]}: {first['msg']}" if place else str(first["msg"]))


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return error_response(error.status_code, str(error.detail), error.headers)


def page_router() -> APIRouter:
    """Return the routes of the page; its files are read once."""
    page = files("bifocal.serving") / "page"
    # A request names an entry of this table and never a file.
    contents = {file.name: file.read_bytes() for file in page.iterdir() if file.is_file()}
    router = APIRouter(include_in_schema=False)

    def send(name: str) -> Response:
        return Response(
            contents[name],
            media_type=TYPES[PurePath(name).suffix],
            headers={"cache-control": "no-cache"},
        )

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
    async def health() -> ServiceState:
        """Return 200 while the process answers."""
        return ServiceState("alive")

    @router.get("/readyz")
    async def ready() -> ServiceState:
        """Return 200 once a model is loaded, and whether a newer one could not be loaded; else
        503."""
        model, failure = handlers.loaded().release, handlers.reloader.failure
        status = "ready" if failure is None else f"ready with an older model: {failure}"
        return ServiceState(status, model.version.model)

    @router.get("/metrics", response_class=Response)
    async def measurements() -> Response:
        """Return the metrics in the text format of Prometheus."""
        return Response(
            generate_latest(handlers.metrics.registry),
            headers={"content-type": CONTENT_TYPE_LATEST},
        )

    return router
