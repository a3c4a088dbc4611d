"""Hostile requests below HTTP and beside each other: connections, bodies, and work within the
limits."""

import json
import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tests.bifocal.serving.server import JSON, Server

Statuses = Counter[int | str]
INFER, SEARCH, UPLOAD = "/v2/models/bifocal/infer", "/api/v1/search", "/api/v1/search/image?k=3"
ATTACKERS = ("127.0.0.1", "127.0.0.3")
"""Addresses of the attackers; probes come from another one."""


def protocol_attacks() -> dict[str, Callable[[Server], Statuses]]:
    """Return the attacks by name."""
    return {
        "one-byte chunks on 32 connections": send_chunks,
        "a length beside chunks, and a second request behind": send_both_lengths,
        "headers of 8,000 lines, and pipelined ones, on 64 connections": send_many_headers,
        "1,100 and 2 x 255 incomplete bodies, 16 incomplete uploads": send_incomplete_bodies,
        "16 tensors of 20 MB: control characters, letters, brackets, digits": send_large_tensors,
        "200 of the largest searches, inferences and explanations of one address": send_work,
        "malformed requests of every route of the OpenAPI document": send_fuzz,
        "answers of 4 MB that nobody reads": send_without_reading,
        "200 clients, each with all routes, beside reloads of the index": send_beside_reloads,
    }


def exchange(
    server: Server, content: bytes, address: str = ATTACKERS[0], seconds: float = 30
) -> bytes:
    """Send bytes; return the answers until the connection ends."""
    found = b""
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", server.port), seconds, (address, 0)) as connection,
    ):
        with suppress(ConnectionError):
            connection.sendall(content)
        while part := connection.recv(65_536):
            found += part
    return found


def statuses(answers: Sequence[bytes]) -> Statuses:
    """Count the statuses of answers, and the connections without one."""
    return Counter(int(answer[9:12]) if answer[9:12].isdigit() else "closed" for answer in answers)


def send_each(server: Server, contents: Sequence[bytes], at_once: int) -> Statuses:
    def send(number: int) -> bytes:
        return exchange(server, contents[number], ATTACKERS[number % 2])

    with ThreadPoolExecutor(at_once) as threads:
        return statuses(list(threads.map(send, range(len(contents)))))


def request(path: str, body: bytes, method: str = "POST", **headers: str) -> bytes:
    names = {
        "content-length": str(len(body)),
        "content-type": "application/json",
        "connection": "close",
    } | {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: localhost",
        *(f"{name}: {value}" for name, value in names.items()),
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def send_chunks(server: Server) -> Statuses:
    chunks = b"1\r\na\r\n" * 65_000
    heads = [
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        for path in ("/", "/healthz", "/page/x", SEARCH, INFER, UPLOAD)
    ]
    return send_each(server, [heads[number % len(heads)] + chunks for number in range(96)], 32)


def send_both_lengths(server: Server) -> Statuses:
    found: Statuses = Counter()
    for path in ("/", "/healthz", SEARCH, UPLOAD):
        for lines in (
            ("content-length: 5", "transfer-encoding: chunked"),
            ("transfer-encoding: chunked", "content-length: 5"),
        ):
            head = "\r\n".join([f"POST {path} HTTP/1.1", "host: localhost", *lines])
            answer = exchange(
                server,
                f"{head}\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".encode(),
            )
            assert answer.count(b"HTTP/1.1") == 1, f"a second request was answered: {answer!r}"
            found += statuses([answer])
    return found


def send_many_headers(server: Server) -> Statuses:
    lines = [b"".join(b"h%d: v\r\n" % number for number in range(count)) for count in (8_000, 80)]
    first = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
    return send_each(
        server, [first + lines[0] + b"\r\n", (first + lines[1] + b"\r\n") * 100] * 96, 64
    )


def send_incomplete_bodies(server: Server) -> Statuses:
    head = (
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: image/jpeg\r\ncontent-length: "
        "{}\r\n\r\n"
    )
    contents = [(head.format("/", 1000), ATTACKERS[0])] * 1_100
    contents += [(head.format(SEARCH, 1000), address) for address in ATTACKERS for _ in range(255)]
    contents += [(head.format(UPLOAD, 10**7), address) for address in ATTACKERS for _ in range(8)]
    connections = []
    for content, address in contents:
        with suppress(OSError):
            connections.append(
                socket.create_connection(("127.0.0.1", server.port), 5, (address, 0))
            )
            connections[-1].sendall(content.encode())
    time.sleep(5)
    answers = []
    for connection in connections:
        connection.settimeout(0.2)
        with suppress(OSError):
            answers.append(connection.recv(64))
        connection.close()
    return statuses(answers) + Counter({"open after 5 s": len(connections) - len(answers)})


@cache
def large_tensors() -> list[bytes]:
    def binary(string: bytes) -> bytes:
        tensor = {
            "name": "text",
            "shape": [1],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": len(string) + 4},
        }
        head = json.dumps({"inputs": [tensor]}).encode()
        body = head + struct.pack("<I", len(string)) + string
        return request(INFER, body, inference_header_content_length=str(len(head)))

    size = 19_900_000
    sentences = ["\N{GRINNING FACE}" + "a" * 4_700] * 4_096
    whole = {
        "inputs": [
            {"name": "text", "shape": [len(sentences)], "datatype": "BYTES", "data": sentences}
        ]
    }
    bodies = [
        b"]" * size,
        b"9" * size,
        b'"' + b"\\\\" * (size // 2),
        b'["' + b"\\ud83d\\ude00" * (size // 12) + b'"]',
    ]
    return [
        binary(b"\x01" * size),
        binary("é".encode() * (size // 2)),
        *(request(INFER, body) for body in bodies),
        request(INFER, json.dumps(whole, ensure_ascii=False).encode()),
    ]


def send_large_tensors(server: Server) -> Statuses:
    found: Statuses = Counter()
    for tensor in large_tensors():
        found += send_each(server, [tensor] * 16, 16)
    return found


def send_work(server: Server) -> Statuses:
    words = ("red star on wet sand beside " * 30)[:830]
    item = json.loads(server.request("POST", SEARCH, b'{"text": "a red star"}', JSON)[1])[
        "results"
    ][0]["id"]
    search = {
        "text": words * 5,
        "plus": [(words * 5)[:4000]] * 7,
        "minus": [(words * 5)[:4000]] * 7,
        "k": 100,
    }
    short = {
        "plus": ["a red star"] * 8,
        "minus": ["sand"] * 8,
        "mode": "vectors",
        "k": 100,
        "offset": 900,
    }
    # Of words that are repeated; a filter above the limit.
    hybrid = {"text": (words * 12)[:9990], "mode": "hybrid"}
    days = {"where": {"split": [f"2{day:03}-01-01" for day in range(4500)]}, "text": "a star"}
    infer = {"inputs": [{"name": "text", "shape": [64], "datatype": "BYTES", "data": [words] * 64}]}
    rows = infer["inputs"][0] | {"shape": [4096], "data": [words[:120]] * 4096}
    answers = infer["inputs"][0] | {"shape": [4096], "data": ["a star"] * 4096}  # of 16 MB
    marks = "a" + "\N{COMBINING ACUTE ACCENT}\N{COMBINING DOT BELOW}" * 4990
    bodies = [
        (INFER, {"inputs": [answers]}),
        (INFER, {"inputs": [rows]}),
        (SEARCH, {"text": "a star", "plus": [marks] * 3}),
        ("/api/v1/explain", {"id": item, "text": marks}),
        (SEARCH, search),
        (SEARCH, short),
        (SEARCH, hybrid),
        (SEARCH, days),
        (INFER, infer),
        ("/api/v1/explain", {"id": item, "text": words}),
    ]
    contents = [
        request(path, json.dumps(body, ensure_ascii=False).encode()) for path, body in bodies
    ] * 23

    def send(content: bytes) -> bytes:
        return exchange(server, content, seconds=8)

    with ThreadPoolExecutor(200) as threads:
        return statuses(list(threads.map(send, contents)))


def send_beside_reloads(server: Server, seconds: float = 15) -> Statuses:
    run = Path(str(server.options[server.options.index("--run") + 1]))
    results = json.loads(
        server.request("POST", SEARCH, b'{"text": "a red star", "k": 24}', JSON)[1]
    )["results"]
    items, end = [result["id"] for result in results], time.monotonic() + seconds
    picture = server.get(f"/api/v1/thumbnail?id={items[0]}")[1]

    def contents(item: str) -> list[bytes]:
        infer = {
            "inputs": [
                {"name": "text", "shape": [4], "datatype": "BYTES", "data": ["a red star"] * 4}
            ]
        }
        bodies = [
            (SEARCH, {"text": f"a red star {item}"}),
            (SEARCH, {"text": "blue ring", "mode": "hybrid"}),
            (INFER, infer),
            ("/api/v1/browse", {}),
            ("/api/v1/explain", {"id": item, "text": "a red star"}),
        ]
        paths = (f"thumbnail?id={item}", f"item?id={item}", f"original?id={item}", "info")
        found = [request(path, json.dumps(body).encode()) for path, body in bodies]
        found += [request(f"/api/v1/{path}", b"", "GET") for path in paths]
        return [*found, request(UPLOAD, picture, content_type="image/jpeg")]

    def search(number: int) -> list[bytes]:
        answers, mine = [], contents(items[number % len(items)])
        while time.monotonic() < end:
            answers.append(
                exchange(server, mine[len(answers) % len(mine)], f"127.0.1.{1 + number % 40}", 60)[
                    :20
                ]
            )
        return answers

    with ThreadPoolExecutor(201) as threads:
        answers = [threads.submit(search, number) for number in range(200)]
        while time.monotonic() < end:
            for file in (run / "index").rglob("*"):
                os.utime(file)
            time.sleep(1)
        return statuses([answer for found in answers for answer in found.result()])


def send_without_reading(server: Server) -> Statuses:
    infer = {
        "inputs": [{"name": "text", "shape": [1_000], "datatype": "BYTES", "data": ["a"] * 1_000}]
    }
    content = request(INFER, json.dumps(infer).encode())
    connections = [socket.create_connection(("127.0.0.1", server.port), 30) for _ in range(16)]
    for connection in connections:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(content)
    time.sleep(5)
    for connection in connections:
        connection.close()
    return Counter({"not read": len(connections)})


def fuzzed(document: dict[str, Any], noise: Random, count: int) -> Iterator[bytes]:
    """Yield requests of the operations of an OpenAPI document, with values, headers and bodies that
    do not belong."""
    schemas = document["components"]["schemas"]

    def value(schema: dict[str, Any], depth: int = 0) -> Any:
        if "$ref" in schema:
            schema = schemas[schema["$ref"].rpartition("/")[2]]
        wrong = [
            None,
            [],
            {},
            "",
            "\ud800",
            "\0",
            "a" * 300,
            -1,
            0,
            10**30,
            1e308,
            True,
            [[]],
            {"a": {}},
            [None],
        ]
        if noise.random() < 0.15 or depth > 5:
            return noise.choice(wrong)
        if "anyOf" in schema:
            return value(noise.choice(schema["anyOf"]), depth + 1)
        if schema.get("type") == "object":
            names = {
                name: value(kind, depth + 1)
                for name, kind in schema.get("properties", {}).items()
                if noise.random() < 0.8
            }
            return names | ({"parameters": noise.choice(wrong)} if noise.random() < 0.3 else {})
        if schema.get("type") == "array":
            return [
                value(schema.get("items", {}), depth + 1) for _ in range(noise.choice((0, 1, 1, 2)))
            ]
        texts = (
            "text",
            "image",
            "embedding",
            "BYTES",
            "a red star",
            "test-00000",
            "\ud800",
            "bifocal",
        )
        return {
            "integer": noise.choice((-1, 0, 1, 2)),
            "number": noise.random(),
            "boolean": True,
        }.get(schema.get("type", ""), noise.choice(texts))

    binary = ("0", "1", "9" * 5_000, "-1", "\xb2", "", "5", "40")
    headers: dict[str, tuple[str, ...]] = {
        "inference-header-content-length": binary,
        "origin": ("http://[", "http://a]b", "null", "\xff", "http://localhost"),
        "authorization": ("Bearer \xff", "Basic", "Bearer", "\xff"),
        "if-none-match": ("\xff", "*"),
        "content-type": (
            "application/json",
            "image/jpeg",
            "",
            "\xff",
            "application/json; charset=\xff",
        ),
        "bifocal-client": ("\xff" * 300, ""),
        "sec-fetch-site": ("\xff", "none"),
        "range": ("bytes=\xff", "bytes=5-1"),
        "x-forwarded-for": ("\xff", "::::"),
        "traceparent": ("\xff",),
        "access-control-request-method": ("\xff",),
    }
    operations = [
        (path, method, kind)
        for path, kinds in document["paths"].items()
        for method, kind in kinds.items()
    ]
    for number in range(count):
        path, method, operation = operations[number % len(operations)]
        parts = ("bifocal", "x", "%00", "%ff", "%ed%a0%80", "..", "a" * 300)
        while "{" in path:
            path = path.partition("{")[0] + noise.choice(parts) + path.partition("}")[2]
        asked = [
            f"{given['name']}={noise.choice((*parts, '-1', '1', '[', 'test-00000', '9' * 5_000))}"
            for given in operation.get("parameters", [])
            if given["in"] == "query"
        ]
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        body = (
            json.dumps(value(content["schema"])).encode()
            if content
            else noise.randbytes(noise.choice((0, 20)))
        )
        if noise.random() < 0.2:
            body = body[: noise.randrange(len(body) + 1)] + noise.randbytes(3)
        chosen = {
            name: noise.choice(values) for name, values in headers.items() if noise.random() < 0.15
        }
        yield request(f"{path}?{'&'.join(asked)}", body, method.upper(), **chosen)


def send_fuzz(server: Server, count: int = 3_000) -> Statuses:
    document = json.loads(server.get("/api/v1/openapi.json")[1])
    return send_each(server, list(fuzzed(document, Random(0), count)), 8)
