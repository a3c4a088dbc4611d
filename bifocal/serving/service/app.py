"""ASGI app of the service."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from bifocal.serving.service.candidate import Candidate
from bifocal.serving.service.handlers import Handlers
from bifocal.serving.service.live.deletions import Deletions
from bifocal.serving.service.live.reloading import ModelSource
from bifocal.serving.service.observation import Metrics
from bifocal.serving.service.routes.access import API
from bifocal.serving.service.routes.admission import Admission, error_response
from bifocal.serving.service.routes.api import CLIENT, api_router
from bifocal.serving.service.routes.inference import inference_router
from bifocal.serving.service.routes.pages import page_router, probe_router
from bifocal.serving.service.schema import Error
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


class Service(FastAPI):
    """FastAPI whose OpenAPI document has no 422: a wrong request is answered with 400."""

    def openapi(self) -> dict[str, Any]:
        """Return the document."""
        document = super().openapi()
        for methods in document["paths"].values():
            for operation in methods.values():
                operation["responses"].pop("422", None)
        return document


def create_app(
    source: ModelSource, settings: Settings, deletions: Deletions | None = None, poll_seconds: float = 5.0,
    candidate: Candidate | None = None,
) -> FastAPI:  # fmt: skip
    """Return the ASGI app of the service."""
    metrics = Metrics()
    handlers = Handlers(source, settings, metrics, deletions or Deletions(), candidate)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await handlers.reloader.refresh()
        tasks = [handlers.reloader.watch(poll_seconds)]
        if handlers.comparison is not None:
            tasks += [handlers.comparison.reloader.follow(poll_seconds), handlers.comparison.run_repeats()]
        running = [asyncio.create_task(task) for task in tasks]
        yield
        for task in running:
            task.cancel()
        if handlers.comparison is not None:
            handlers.comparison.close()
        handlers.executor.shutdown(cancel_futures=True)

    answers: dict[int | str, dict[str, Any]] = {
        status: {"model": Error, "description": text} for status, text in ERRORS.items()
    }
    app = Service(
        title="Bifocal search", version="1", description="Search images by sentences and images, and see where.",
        lifespan=lifespan, responses=answers, openapi_url=f"{API}openapi.json", docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    for router in (api_router(handlers), inference_router(handlers), probe_router(handlers), page_router()):
        app.include_router(router)
    app.add_exception_handler(RequestValidationError, _bad_request)
    app.add_exception_handler(HTTPException, _refused)
    app.add_middleware(Admission, settings=settings, metrics=metrics)
    app.add_middleware(
        CORSMiddleware, allow_origins=settings.origins, allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["authorization", "content-type", CLIENT],
    )  # fmt: skip
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
