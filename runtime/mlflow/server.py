"""HTTP server of a registered model, for the image 'serve': MLflow's own with a limit of the body
and short errors.

Run it by its path, 'python -P runtime/mlflow/server.py': an import of the package would need more
than the image has, and would hide the code that the model brings along. The variables are
``MODEL``, ``HOST``, ``PORT``, ``BIFOCAL_MAX_BODY_BYTES`` and ``BIFOCAL_MAX_REQUESTS``; the
variables of ``bifocal/onnx/limits.py`` limit the rows.
"""

import json
import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

MAX_BODY_BYTES = 32 * 2**20
MAX_REQUESTS = 64
MAX_ERROR_CHARACTERS = 1000


class LimitedBody:
    """ASGI middleware that answers 413 to a body of more than ``max_bytes``, before it is read as a
    whole."""

    def __init__(self, app: App, max_bytes: int) -> None:
        self.app, self.max_bytes = app, max_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, more = bytearray(), True
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        while more and len(body) <= self.max_bytes and int(declared) <= self.max_bytes:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        if more or len(body) > self.max_bytes:
            text = (
                f"the body has more than {self.max_bytes} bytes (BIFOCAL_MAX_BODY_BYTES of the "
                "server)"
            )
            await _answer(send, 413, {"error_code": "BAD_REQUEST", "message": text})
            return

        bodies = [bytes(body)]

        async def receive_body() -> Message:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            return await receive()  # waits until the client disconnects

        await self.app(scope, receive_body, send)


class ShortErrors:
    """ASGI middleware that takes stack traces and echoed inputs out of the errors that clients
    get."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        start: Message = {}
        body = bytearray()

        async def send_short(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                start.update(message)
            elif not start:
                await send(message)
            else:
                body.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    await _answer(send, start["status"], _short_error(bytes(body)))

        await self.app(scope, receive, send_short)


def _short_error(body: bytes) -> dict[str, str]:
    """Return code and message of MLflow's error, or of another answer."""
    text = body.decode(errors="replace")
    try:
        error = json.loads(text)
        code, text = str(error["error_code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):  # not MLflow's JSON
        code = "BAD_REQUEST"
    # MLflow puts the whole input before the error of the model.
    text = text.rpartition("\nError: ")[2].partition("\nInput: ")[0]
    return {"error_code": code, "message": text[:MAX_ERROR_CHARACTERS]}


async def _answer(send: Send, status: int, content: dict[str, str]) -> None:
    body = json.dumps(content).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    """Load the model ``MODEL`` and serve it until the process is stopped."""
    import uvicorn
    from mlflow.pyfunc import load_model, scoring_server

    model = load_model(os.environ.get("MODEL", "models:/bifocal@champion"))
    max_bytes = int(os.environ.get("BIFOCAL_MAX_BODY_BYTES", MAX_BODY_BYTES))
    uvicorn.run(
        ShortErrors(LimitedBody(scoring_server.init(model), max_bytes)),
        host=os.environ.get("HOST", "127.0.0.1"),
        port=int(os.environ.get("PORT", "8080")),
        limit_concurrency=int(os.environ.get("BIFOCAL_MAX_REQUESTS", MAX_REQUESTS)),
    )


if __name__ == "__main__":
    main()
