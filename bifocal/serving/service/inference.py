"""Routes under ``/v2``: the Open Inference Protocol of KServe, which embeds sentences and images.

A binary tensor is the data behind a JSON header.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, MaxLen, MinLen
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from bifocal.durable import json_text
from bifocal.onnx.limits import Limits
from bifocal.onnx.pixels import DecodedImage
from bifocal.serving.service.api import MAX_DEPTH, MAX_ELEMENTS, FailFast, JSONRoute, parse_json
from bifocal.serving.service.bodies import INFERENCE
from bifocal.serving.service.handlers import Handlers
from bifocal.serving.service.live import LoadedRelease
from bifocal.serving.service.models import SearchRelease
from bifocal.serving.service.turns import check_spent

MODEL = "bifocal"
TEXT, IMAGE, OUTPUT = "text", "image", "embedding"
HEADER = "inference-header-content-length"


@dataclass
class Tensor:
    """Description of an input or output; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


@dataclass
class ServerMetadata:
    """Name and version of the API."""

    name: str
    version: str
    extensions: list[str]


@dataclass
class ModelMetadata:
    """Inputs and outputs of the model; a version is the SHA-256 of the exported model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    parameters: dict[str, int]  # limits of a request; 0 means no limit


@dataclass
class Live:
    """Whether the process answers."""

    live: bool


@dataclass
class Ready:
    """Whether the service has a model."""

    ready: bool


@dataclass
class ModelReady:
    """Whether the model is loaded."""

    name: str
    ready: bool


@dataclass(kw_only=True)
class InferenceInput:
    """Sentences, or image files in base64.

    Attributes:
        name: "text" or "image".
        shape: [n] or [n, 1].
        datatype: "BYTES".
        data: n strings; of shape [n, 1], also n lists of one string.
    """

    name: str
    shape: Annotated[list[Annotated[int, Ge(0)]], MinLen(1), MaxLen(2)]
    datatype: str
    data: (
        Annotated[list[str], FailFast()]
        | Annotated[list[Annotated[list[str], FailFast()]], FailFast()]
    )


@dataclass
class RequestedOutput:
    """Output to return; its parameter "binary_data" says whether it is binary."""

    name: str
    parameters: dict[str, Any] | None = None


@dataclass(kw_only=True)
class InferenceRequest:
    """Request of the protocol with one input; other keys are ignored."""

    parameters: dict[str, Any] = field(default_factory=dict)
    id: str | None = None
    inputs: Annotated[list[InferenceInput], MinLen(1), FailFast()]
    outputs: Annotated[list[RequestedOutput], FailFast()] = field(default_factory=list)


@dataclass
class InferenceOutput:
    """Embeddings (n, d), row by row."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]


@dataclass
class InferenceResponse:
    """Answer of the protocol, with the ``id`` of the request."""

    model_name: str
    model_version: str
    outputs: list[InferenceOutput]
    id: str | None = None


def read_binary(body: bytes, length: str, limits: Limits) -> Any:
    """Return the request of a body whose inputs of datatype BYTES are binary, each string after its
    length.

    Args:
        length: bytes of the JSON at the start of the body, as its header says.
        limits: of the rows and of the characters of a sentence.

    Raises:
        ValueError: the body has another form.
    """
    start = (
        int(length) if length.isascii() and length.isdigit() and len(length) < 10 else len(body) + 1
    )
    if start > len(body):
        raise ValueError(f"the header {HEADER} is not a length within the body")
    request = parse_json(body[:start])
    inputs = request.get("inputs") if isinstance(request, dict) else None
    for given in inputs if isinstance(inputs, list) else []:
        parameters = given.get("parameters") if isinstance(given, dict) else None
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is None:
            continue
        if not isinstance(size, int) or not 0 <= size <= len(body) - start:
            raise ValueError("binary_data_size is not a size within the body")
        most = (
            4 * limits.characters if given.get("name") == TEXT else 0
        )  # bytes of a character in UTF-8
        given["data"] = _binary_strings(body, start, start + size, limits.rows, most)
        start += size
    if start != len(body):
        raise ValueError("the body has more bytes than its header and its binary inputs")
    return request


def _binary_strings(data: bytes, start: int, end: int, rows: int, most: int) -> list[str]:
    """Return strings of at most ``most`` bytes, 0 for any number; one more than ``rows`` tells that
    there are more."""
    found = list[str]()
    while start < end and not (rows and len(found) > rows):
        if start + 4 > end:
            raise ValueError("a binary string has no length")
        (length,) = struct.unpack_from("<I", data, start)
        if length > end - start - 4:
            raise ValueError("a binary string is longer than its input")
        if most and length > most:
            raise ValueError(f"a sentence has {length} bytes, at most {most} are accepted")
        found.append(data[start + 4 : start + 4 + length].decode())
        start += 4 + length
    return found


def written(answer: dict[str, Any], vectors: NDArray[np.float32], binary: bool) -> Response:
    """Return an answer with its only output, in JSON or binary."""
    described: dict[str, Any] = {
        "name": OUTPUT,
        "shape": list(vectors.shape),
        "datatype": "FP32",
    }
    if binary:
        data = np.ascontiguousarray(vectors, "<f4").tobytes()
        described["parameters"] = {"binary_data_size": len(data)}
        text = json_text({**answer, "outputs": [described]}).encode()
        return Response(
            text + data, media_type="application/octet-stream", headers={HEADER: str(len(text))}
        )
    head = json_text({**answer, "outputs": [{**described, "data": []}]}).encode()
    # Row by row: other threads wait while a list is written.
    rows = b",".join(to_json(row.tolist(), inf_nan_mode="null")[1:-1] for row in vectors)
    return Response(head[:-4] + rows + head[-4:], media_type="application/json")


class InferenceRoute(JSONRoute):
    """Route that also reads bodies without a Content-Type, and binary inputs."""

    limits = Limits()

    def parser(self, request: Request) -> Callable[[bytes], Any]:
        """Return the function that parses the body of a request."""
        length = request.headers.get(HEADER)
        if length is not None or "content-type" not in request.headers:
            others = [entry for entry in request.scope["headers"] if entry[0] != b"content-type"]
            request.scope["headers"] = [*others, (b"content-type", b"application/json")]
        return (
            parse_json
            if length is None
            else partial(read_binary, length=length, limits=self.limits)
        )


def inference_router(handlers: Handlers) -> APIRouter:
    """Return the routes; probes of health need no key."""

    class Route(InferenceRoute):
        limits = handlers.settings.limits

    router = APIRouter(prefix=INFERENCE, route_class=Route)

    @router.get("/health/live")
    async def live() -> Live:
        """Return 200 while the process answers."""
        return Live(True)

    @router.get("/health/ready")
    async def ready() -> Ready:
        """Return 200 once a model is loaded, else 503."""
        handlers.loaded()
        return Ready(True)

    def find(model: str, version: str | None = None) -> LoadedRelease:
        if model != MODEL:
            raise HTTPException(404, f"there is no such model; this service has {MODEL}")
        found = handlers.loaded()
        if version not in (None, known := found.release.version.model_hash):
            raise HTTPException(404, f"there is no such version; this service has {known}")
        return found

    @router.get(
        "/", include_in_schema=False
    )  # the protocol's OpenAPI has this path, its text the other
    @router.get("")
    async def server() -> ServerMetadata:
        """Return name and version of the server."""
        return ServerMetadata(MODEL, "1", ["binary_tensor_data"])

    @router.get("/models/{model}")
    async def metadata(model: str) -> ModelMetadata:
        """Return inputs and outputs of the model."""
        return described(find(model).release)

    @router.get("/models/{model}/versions/{version}")
    async def metadata_of_version(model: str, version: str) -> ModelMetadata:
        """Return inputs and outputs of a version."""
        return described(find(model, version).release)

    def described(found: SearchRelease) -> ModelMetadata:
        names = (TEXT, IMAGE) if found.accepts_images else (TEXT,)
        inputs = [Tensor(name, "BYTES", [-1]) for name in names]
        output = Tensor(OUTPUT, "FP32", [-1, found.index.description.dimension])
        limits = {
            "max_elements": MAX_ELEMENTS,
            "max_depth": MAX_DEPTH,
            "max_rows": handlers.settings.limits.rows,
            "max_body_bytes": handlers.settings.limits.image_bytes,
        }
        return ModelMetadata(
            MODEL, [found.version.model_hash], "onnx_onnxv1", inputs, [output], limits
        )

    @router.get("/models/{model}/ready")
    async def model_ready(model: str) -> ModelReady:
        """Return 200 once the model is loaded, else 503."""
        find(model)
        return ModelReady(MODEL, True)

    @router.get("/models/{model}/versions/{version}/ready")
    async def version_ready(model: str, version: str) -> ModelReady:
        """Return 200 if this version is loaded."""
        find(model, version)
        return ModelReady(MODEL, True)

    @router.post("/models/{model}/infer", response_model=InferenceResponse)
    async def infer(model: str, body: InferenceRequest) -> Response:
        """Return the embeddings of sentences, or of image files in base64."""
        return await embeddings(find(model), body)

    @router.post("/models/{model}/versions/{version}/infer", response_model=InferenceResponse)
    async def infer_by_version(model: str, version: str, body: InferenceRequest) -> Response:
        """Return the embeddings by a version."""
        return await embeddings(find(model, version), body)

    async def embeddings(loaded: LoadedRelease, body: InferenceRequest) -> Response:
        binary, found = _is_binary(body), loaded.release
        strings, limits = _strings(body), handlers.settings.limits
        await handlers.run(limits.check_rows, len(strings))
        if body.inputs[0].name == TEXT:
            handlers.check_sentences(strings)
            parts = [await loaded.embed(strings)]
        else:
            if not found.accepts_images:
                raise HTTPException(
                    409, "this model reads published features, not image files: send text"
                )
            parts, total, embed = [], 0, found.embedder.embed_pixels
            for row, string in enumerate(strings):
                check_spent()
                image = await _decode(handlers, found, row, string)
                total += image.width * image.height
                await handlers.run(limits.check_pixels, total, row)
                # A batch takes as long as its images.
                parts.append(await loaded.threads.others.run(embed, [image.pixels]))
        vectors = np.concatenate(parts).astype(np.float32)
        answer = {"model_name": MODEL, "model_version": found.version.model_hash}
        if body.id is not None:
            answer["id"] = body.id
        return await loaded.threads.others.run(written, answer, vectors, binary)

    return router


async def _decode(handlers: Handlers, model: SearchRelease, row: int, string: str) -> DecodedImage:
    try:
        file = await handlers.run(handlers.settings.limits.read_file, string)
        return await handlers.decode(model, file)
    except HTTPException as error:
        raise HTTPException(error.status_code, f"row {row}: {error.detail}") from error


def _is_binary(body: InferenceRequest) -> bool:
    """Return whether the client asks for a binary output; raise 400 for an unknown output."""
    for output in body.outputs:
        if output.name != OUTPUT:
            raise HTTPException(400, f"there is no output {output.name!r}; this model has {OUTPUT}")
    everywhere = body.parameters.get("binary_data_output", False)
    wanted = [(output.parameters or {}).get("binary_data", everywhere) for output in body.outputs]
    return bool(wanted[0] if wanted else everywhere)


def _strings(body: InferenceRequest) -> list[str]:
    """Return the strings of the only input; raise 400 for another request."""
    if len(body.inputs) != 1 or body.inputs[0].name not in (TEXT, IMAGE):
        raise HTTPException(400, f"expected one input, {TEXT} or {IMAGE}")
    given = body.inputs[0]
    data = [value for row in given.data for value in ([row] if isinstance(row, str) else row)]
    shaped = given.shape[1:] in ([], [1]) and given.shape[0] == len(data) == len(given.data)
    if given.datatype != "BYTES" or not shaped:
        raise HTTPException(
            400, f"{given.name}: expected n strings of datatype BYTES and shape [n] or [n, 1]"
        )
    if not data:
        raise HTTPException(400, f"{given.name} is empty")
    return data
