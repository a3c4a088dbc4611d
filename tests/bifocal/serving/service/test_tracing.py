"""Spans of the service, as OpenTelemetry's SDK exports them."""

import sys

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from bifocal.serving.service.app import create_app
from bifocal.serving.service.settings import Settings
from bifocal.serving.service.tracing import ENDPOINTS, add_traces
from tests.bifocal.serving.runs import LoadedSource
from tests.bifocal.serving.service.clients import SEARCH

TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize("convention", ["", "http"])  # the present and the new names of attributes
def test_each_request_is_a_span_of_the_clients_trace_without_text(
    source: LoadedSource, monkeypatch: pytest.MonkeyPatch, convention: str
) -> None:
    pytest.importorskip("opentelemetry.instrumentation.asgi", reason="the extra traces is not installed")
    from opentelemetry.instrumentation._semconv import _OpenTelemetrySemanticConventionStability as Convention
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", convention)
    monkeypatch.setattr(Convention, "_initialized", False)
    exporter = InMemorySpanExporter()
    app = create_app(source, Settings())
    assert add_traces(app, SimpleSpanProcessor(exporter))
    with TestClient(app, base_url="http://localhost") as client:
        for probe in ("/healthz", "/readyz", "/metrics"):
            assert client.get(probe).status_code == 200
        assert exporter.get_finished_spans() == ()
        headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        assert client.post(SEARCH, json={"text": "a red star"}, headers=headers).status_code == 200
        assert client.post("/api/v1/search/image?plus=a%20secret%20star", content=b"no image").status_code >= 400
    found, refused = exporter.get_finished_spans()
    assert found.name == f"POST {SEARCH}"
    assert f"{found.context.trace_id:032x}" == TRACE
    assert found.resource.attributes["service.name"] == "bifocal"
    statuses = [span.attributes.get("http.status_code", span.attributes.get("http.response.status_code"))
                for span in (found, refused)]  # fmt: skip
    assert statuses[0] == 200
    assert statuses[1] >= 400
    texts = found.to_json() + refused.to_json()
    assert "/api/v1/search/image" in texts
    assert "secret" not in texts
    assert "red star" not in texts


def test_without_a_collector_nothing_is_imported_and_with_one_the_packages_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.asgi", None)
    app = FastAPI()
    assert not add_traces(app)
    assert app.user_middleware == []
    monkeypatch.setenv(ENDPOINTS[1], "http://127.0.0.1:9/v1/traces")
    with pytest.raises(ValueError, match=r"pip install 'bifocal-vse\[traces\]'"):
        add_traces(app)
