"""Binary tensors of the Open Inference Protocol: a JSON header, and the data behind it."""

import json
import struct
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any

import numpy as np
from fastapi import HTTPException, Request, Response
from numpy.typing import NDArray

from bifocal.serving.service.routes.json_bodies import JSONRoute, parse_json

HEADER = "inference-header-content-length"
JSON_TYPE = (b"content-type", b"application/json")


def read_binary(body: bytes, length: str, rows: int) -> dict[str, Any]:
    """Return the request of a body whose inputs of datatype BYTES are binary, each string after its length.

    Args:
        length: bytes of the JSON at the start of the body, as its header says.
        rows: most strings of a request; 0 means no limit.

    Raises:
        HTTPException: 400, the body has another form.
    """
    if not length.isdigit() or int(length) > len(body):
        raise HTTPException(400, f"the header {HEADER} is not a length within the body")
    request, start = parse_json(body[: int(length)]), int(length)
    inputs = request.get("inputs") if isinstance(request, dict) else None
    for given in inputs if isinstance(inputs, list) else []:
        size = given.get("parameters", {}).get("binary_data_size") if isinstance(given, dict) else None
        if size is None:
            continue
        if not isinstance(size, int) or not 0 <= size <= len(body) - start:
            raise HTTPException(400, "binary_data_size is not a size within the body")
        given["data"] = _strings(body[start : start + size], rows)
        start += size
    if start != len(body):
        raise HTTPException(400, "the body has more bytes than its header and its binary inputs")
    return request  # type: ignore[no-any-return]


def _strings(data: bytes, rows: int) -> list[str]:
    found, start = list[str](), 0
    while start < len(data):
        if rows and len(found) > rows:
            break  # the check of the rows refuses it
        if start + 4 > len(data):
            raise HTTPException(400, "a binary string has no length")
        (length,) = struct.unpack_from("<I", data, start)
        if start + 4 + length > len(data):
            raise HTTPException(400, "a binary string is longer than its input")
        try:
            found.append(data[start + 4 : start + 4 + length].decode())
        except UnicodeDecodeError as error:
            raise HTTPException(400, "a binary string is not UTF-8") from error
        start += 4 + length
    return found


def binary_response(answer: dict[str, Any], vectors: NDArray[np.float32]) -> Response:
    """Return an answer whose only output is binary."""
    (output,) = answer["outputs"]
    data = np.ascontiguousarray(vectors, "<f4").tobytes()
    described = {key: value for key, value in output.items() if key != "data"}
    text = json.dumps({**answer, "outputs": [{**described, "parameters": {"binary_data_size": len(data)}}]}).encode()
    return Response(text + data, media_type="application/octet-stream", headers={HEADER: str(len(text))})


class InferenceRoute(JSONRoute):
    """Route that also reads bodies without a Content-Type, and binary inputs."""

    rows = 0

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def converted(request: Request) -> Response:
            scope: MutableMapping[str, Any] = request.scope
            length, body = request.headers.get(HEADER), await request.body()
            if length is not None:
                body = json.dumps(read_binary(body, length, self.rows)).encode()
            others = [entry for entry in scope["headers"] if entry[0] not in (b"content-type", b"content-length")]
            if length is not None or "content-type" not in request.headers:
                scope = {**scope, "headers": [*others, JSON_TYPE, (b"content-length", str(len(body)).encode())]}

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": body, "more_body": False}

            return await handle(Request(scope, receive))

        return converted
