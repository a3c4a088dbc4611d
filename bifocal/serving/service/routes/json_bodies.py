"""JSON bodies of requests: bounded before they are parsed, and larger ones parsed outside the event loop."""

import json
import re
from collections.abc import Callable, Coroutine
from itertools import accumulate
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

MAX_ELEMENTS, MAX_DEPTH = 20_000, 16
"""Values and keys of a body, and levels of its lists and objects."""
SMALL = 4096
"""Bytes of a body that is parsed in the event loop: a thread takes longer."""
# Possessive, and an open string reaches to the end: the time is linear in the length.
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)
BRACKETS = b"[]{}"
OTHERS = bytes(set(range(256)) - set(BRACKETS))


class FailFast:
    """Annotation of a list: its validation ends at the first error, so errors need no memory."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Return the schema of the list."""
        return handler(source) | {"fail_fast": True}


def parse_json(body: bytes) -> Any:
    """Return the value of a body; raise 400 for one with too many elements or levels before it is parsed."""
    # An escaped quote may end a string after an escaped backslash, but each string has one unescaped quote.
    elements = body.count(b'"') - body.count(b'\\"') if b'"' in body else 0
    if elements <= 2 * MAX_ELEMENTS:
        structure = STRING.sub(b"", body)
        elements = sum(structure.count(sign) for sign in (b",", b":", b"[", b"{"))
    if elements > MAX_ELEMENTS:
        raise HTTPException(400, f"the JSON has more than {MAX_ELEMENTS} elements")
    nesting = accumulate(1 if sign in b"[{" else -1 for sign in structure.translate(None, OTHERS))
    if max(nesting, default=0) > MAX_DEPTH:
        raise HTTPException(400, f"the JSON is nested in more than {MAX_DEPTH} levels")
    return json.loads(body)


class _JSONRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        return parse_json(body) if len(body) <= SMALL else await run_in_threadpool(parse_json, body)


class JSONRoute(APIRoute):
    """Route that parses a JSON body by ``parse_json``, a large one in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of the route."""
        handle = super().get_route_handler()

        async def parsed_in_thread(request: Request) -> Response:
            return await handle(_JSONRequest(request.scope, request.receive))

        return parsed_in_thread
