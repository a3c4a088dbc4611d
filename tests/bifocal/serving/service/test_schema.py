"""The OpenAPI document is true: every answer has the described fields, and every described field is
accepted."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

from bifocal.serving.service.app import create_app
from bifocal.serving.service.models import RunSource
from bifocal.serving.service.settings import Settings

ADMIN = {"authorization": "Bearer red"}
TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a star"]}
INFERENCE = {"parameters": {}, "id": "1", "inputs": [TENSOR], "outputs": [{"name": "embedding"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/api/v1/search": {
        "text": "a star",
        "like": "test-00003",
        "plus": ["snow"],
        "minus": ["sand"],
        "mode": "vectors",
        "where": {"parity": "odd"},
        "group": "parity",
        "per_group": 2,
        "k": 3,
        "offset": 1,
    },
    "/api/v1/browse": {"where": {"parity": "odd"}, "k": 3, "offset": 1},
    "/api/v1/click": {"answer": "x", "item": "test-00003"},
    "/api/v1/correction": {"item": "test-00003", "text": "a star", "right": True},
    "/api/v1/explain": {"id": "test-00003", "text": "a red star"},
    "/v2/models/{model}/infer": INFERENCE,
    "/v2/models/{model}/versions/{version}/infer": INFERENCE,
}
COMPARING = ("/api/v1/click", "/api/v1/comparison")
"""Routes that need a second release: see the folder comparison."""
PARAMETERS = {
    "id": "test-00003",
    "side": "256",
    "plus": "snow",
    "minus": "sand",
    "where": '{"parity": "odd"}',
    "group": "parity",
    "per_group": "2",
    "k": "3",
    "offset": "1",
}


@pytest.fixture(scope="module")
def client(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    corrections = tmp_path_factory.mktemp("corrections") / "corrections.csv"
    settings = Settings(admin_key="red", originals=True, corrections=corrections)
    app = create_app(RunSource(run_folder), settings)
    with TestClient(app, base_url="http://localhost", headers=ADMIN) as opened:
        yield opened


@pytest.fixture(scope="module")
def document(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/api/v1/openapi.json").json()
    for schema in found["components"]["schemas"].values():
        schema.setdefault("additionalProperties", False)  # an answer has no other fields
    return found


def validate(document: dict[str, Any], schema: dict[str, Any], value: Any) -> None:
    from jsonschema import Draft202012Validator  # takes seconds, and every worker imports this file

    Draft202012Validator({**schema, "components": document["components"]}).validate(value)


def call(client: TestClient, document: dict[str, Any], path: str, method: str) -> Any:
    """Call an operation with all parameters and all fields of its body that the document names."""
    operation = document["paths"][path][method]
    parameters = operation.get("parameters", [])
    query = {
        entry["name"]: PARAMETERS[entry["name"]] for entry in parameters if entry["in"] == "query"
    }
    version = client.get("/v2/models/bifocal").json()["versions"][0]
    address = (
        f"{path.replace('{model}', 'bifocal').replace('{version}', version)}?{urlencode(query)}"
    )
    if path == "/api/v1/search/image":
        picture = client.get("/api/v1/thumbnail?id=test-00005").content
        return client.request(
            method, address, content=picture, headers={"content-type": "image/jpeg"}
        )
    if path in BODIES:
        reference = operation["requestBody"]["content"]["application/json"]["schema"]
        described = document["components"]["schemas"][reference["$ref"].rpartition("/")[2]]
        assert set(BODIES[path]) == set(described["properties"])
        validate(document, reference, BODIES[path])
        return client.request(method, address, json=BODIES[path])
    return client.request(method, address)


def test_every_operation_answers_as_described(client: TestClient, document: dict[str, Any]) -> None:
    operations = [
        (path, method) for path, methods in document["paths"].items() for method in methods
    ]
    operations.sort(key=lambda operation: operation[1] == "delete")
    for path, method in operations:
        answer = call(client, document, path, method)
        described = document["paths"][path][method]["responses"][str(answer.status_code)]
        assert answer.status_code in ((404,) if path in COMPARING else (200, 204)), (
            path,
            answer.text,
        )
        content = described.get("content", {})
        if "application/json" in content:
            validate(document, content["application/json"]["schema"], answer.json())
        elif content:
            kind = answer.headers["content-type"].partition(";")[0]
            assert {kind, f"{kind.partition('/')[0]}/*"} & set(content), path


def test_every_mode_and_each_part_of_an_answer_is_described(
    client: TestClient, document: dict[str, Any]
) -> None:
    schemas = document["components"]["schemas"]
    modes = schemas["SearchRequest"]["properties"]["mode"]["enum"]
    assert modes == client.get("/api/v1/info").json()["modes"]
    for mode in modes:
        results = client.post("/api/v1/search", json={"text": "a star", "mode": mode}).json()
        validate(document, {"$ref": "#/components/schemas/Results"}, results)
        assert set(results["results"][0]) == set(schemas["SearchHit"]["properties"])
    picture = base64.b64encode(client.get("/api/v1/thumbnail?id=test-00005").content).decode()
    request = {"inputs": [TENSOR | {"name": "image", "data": [picture]}]}
    answer = client.post("/v2/models/bifocal/infer", json=request).json()
    validate(document, {"$ref": "#/components/schemas/InferenceResponse"}, answer)


def test_errors_are_described(client: TestClient, document: dict[str, Any]) -> None:
    calls = [
        ("post", "/api/v1/search", "/api/v1/search", 400),
        ("get", "/api/v1/item", "/api/v1/item?id=x", 404),
        ("delete", "/api/v1/item", "/api/v1/item?id=x", 404),
        ("get", "/v2/models/{model}", "/v2/models/other", 404),
        ("post", "/v2/models/{model}/infer", "/v2/models/bifocal/infer", 400),
    ]
    for method, path, address, status in calls:
        answer = client.request(method, address)
        assert answer.status_code == status
        described = document["paths"][path][method]["responses"][str(status)]["content"][
            "application/json"
        ]
        validate(document, described["schema"], answer.json())
    client.headers.pop("authorization")
    assert client.delete("/api/v1/item?id=test-00001").status_code == 403
    client.headers.update(ADMIN)
    assert json.loads(client.get("/readyz").text)["status"] == "ready"
