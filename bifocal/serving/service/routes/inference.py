"""Routes under ``/v2``: the Open Inference Protocol of KServe, which embeds sentences and images."""

from dataclasses import asdict

import numpy as np
from fastapi import APIRouter
from starlette.exceptions import HTTPException

from bifocal.onnx.limits import chunks
from bifocal.onnx.pixels import DecodedImage
from bifocal.serving.service.handlers import Handlers
from bifocal.serving.service.routes.access import INFERENCE
from bifocal.serving.service.routes.binary_tensors import InferenceRoute, binary_response
from bifocal.serving.service.routes.inference_messages import (
    InferenceOutput,
    InferenceRequest,
    InferenceResponse,
    Live,
    ModelMetadata,
    ModelReady,
    Ready,
    ServerMetadata,
    Tensor,
)
from bifocal.serving.service.routes.json_bodies import MAX_DEPTH, MAX_ELEMENTS
from bifocal.serving.service.served_model import ServedModel

MODEL = "bifocal"
TEXT, IMAGE, OUTPUT = "text", "image", "embedding"
SENTENCES, IMAGES = 64, 8
"""Sentences and image files that are embedded at once."""


def inference_router(handlers: Handlers) -> APIRouter:
    """Return the routes; probes of health need no key."""

    class Route(InferenceRoute):
        rows = handlers.settings.limits.rows

    router = APIRouter(prefix=INFERENCE, route_class=Route)

    @router.get("/health/live")
    async def live() -> Live:
        """Return 200 while the process answers."""
        return Live(True)

    @router.get("/health/ready")
    async def ready() -> Ready:
        """Return 200 once a model is loaded, else 503."""
        handlers.generation()
        return Ready(True)

    def served(model: str, version: str | None = None) -> ServedModel:
        if model != MODEL:
            raise HTTPException(404, f"there is no such model; this service has {MODEL}")
        found = handlers.generation().served
        if version not in (None, found.version.model_hash):
            raise HTTPException(404, f"there is no such version; this service has {found.version.model_hash}")
        return found

    @router.get("/", include_in_schema=False)  # the protocol's OpenAPI has this path, its text the other
    @router.get("")
    async def server() -> ServerMetadata:
        """Return name and version of the server."""
        return ServerMetadata(MODEL, "1", ["binary_tensor_data"])

    @router.get("/models/{model}")
    async def metadata(model: str) -> ModelMetadata:
        """Return inputs and outputs of the model."""
        return described(served(model))

    @router.get("/models/{model}/versions/{version}")
    async def metadata_of_version(model: str, version: str) -> ModelMetadata:
        """Return inputs and outputs of a version."""
        return described(served(model, version))

    def described(found: ServedModel) -> ModelMetadata:
        names = (TEXT, IMAGE) if found.accepts_images else (TEXT,)
        inputs = [Tensor(name, "BYTES", [-1]) for name in names]
        output = Tensor(OUTPUT, "FP32", [-1, found.index.description.dimension])
        limits = {
            "max_elements": MAX_ELEMENTS, "max_depth": MAX_DEPTH, "max_rows": handlers.settings.limits.rows,
            "max_body_bytes": handlers.settings.limits.image_bytes,
        }  # fmt: skip
        return ModelMetadata(MODEL, [found.version.model_hash], "onnx_onnxv1", inputs, [output], limits)

    @router.get("/models/{model}/ready")
    async def model_ready(model: str) -> ModelReady:
        """Return 200 once the model is loaded, else 503."""
        served(model)
        return ModelReady(MODEL, True)

    @router.get("/models/{model}/versions/{version}/ready")
    async def version_ready(model: str, version: str) -> ModelReady:
        """Return 200 if this version is loaded."""
        served(model, version)
        return ModelReady(MODEL, True)

    @router.post("/models/{model}/infer", response_model_exclude_none=True)
    async def infer(model: str, body: InferenceRequest) -> InferenceResponse:
        """Return the embeddings of sentences, or of image files in base64."""
        return await embeddings(served(model), body)

    @router.post("/models/{model}/versions/{version}/infer", response_model_exclude_none=True)
    async def infer_by_version(model: str, version: str, body: InferenceRequest) -> InferenceResponse:
        """Return the embeddings by a version."""
        return await embeddings(served(model, version), body)

    async def embeddings(found: ServedModel, body: InferenceRequest) -> InferenceResponse:
        binary = _is_binary(body)
        strings, limits = _strings(body), handlers.settings.limits
        await handlers.run(limits.check_rows, len(strings))
        if body.inputs[0].name == TEXT:
            handlers.runner.check_sentences(strings)
            parts = [await handlers.run(found.embed_sentences, part) for part in chunks(strings, SENTENCES)]
        else:
            if not found.accepts_images:
                raise HTTPException(409, "this model reads published features, not image files: send text")
            parts, total = [], 0
            for part in chunks(list(enumerate(strings)), IMAGES):
                pixels = []
                for row, string in part:
                    decoded = await _decode(handlers, found, row, string)
                    total += decoded.width * decoded.height
                    await handlers.run(limits.check_pixels, total, row)
                    pixels.append(decoded.pixels)
                parts.append(await handlers.run(found.embedder.embed_pixels, pixels))
        vectors = np.concatenate(parts).astype(np.float32)
        data = [] if binary else vectors.ravel().tolist()
        output = InferenceOutput(OUTPUT, list(vectors.shape), "FP32", data)
        answer = InferenceResponse(MODEL, found.version.model_hash, [output], body.id)
        if binary:
            given = {key: value for key, value in asdict(answer).items() if value is not None}
            return binary_response(given, vectors)  # type: ignore[return-value]
        return answer

    return router


async def _decode(handlers: Handlers, served: ServedModel, row: int, string: str) -> DecodedImage:
    try:
        file = await handlers.run(handlers.settings.limits.read_file, string)
        return await handlers.runner.decode(served, file)
    except HTTPException as error:
        raise HTTPException(error.status_code, f"row {row}: {error.detail}") from error


def _is_binary(body: InferenceRequest) -> bool:
    """Return whether the client asks for a binary output; raise 400 for an unknown output."""
    for output in body.outputs:
        if output.get("name") != OUTPUT:
            raise HTTPException(400, f"there is no output {output.get('name')!r}; this model has {OUTPUT}")
    everywhere = body.parameters.get("binary_data_output", False)
    wanted = [(output.get("parameters") or {}).get("binary_data", everywhere) for output in body.outputs]
    return bool(wanted[0] if wanted else everywhere)


def _strings(body: InferenceRequest) -> list[str]:
    """Return the strings of the only input; raise 400 for another request."""
    if len(body.inputs) != 1 or body.inputs[0].name not in (TEXT, IMAGE):
        raise HTTPException(400, f"expected one input, {TEXT} or {IMAGE}")
    given = body.inputs[0]
    data = [value for row in given.data for value in ([row] if isinstance(row, str) else row)]
    shaped = given.shape[1:] in ([], [1]) and given.shape[0] == len(data) == len(given.data)
    if given.datatype != "BYTES" or not shaped:
        raise HTTPException(400, f"{given.name}: expected n strings of datatype BYTES and shape [n] or [n, 1]")
    if not data:
        raise HTTPException(400, f"{given.name} is empty")
    return data
