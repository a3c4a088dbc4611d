"""Traces of the service by OpenTelemetry, with the extra ``traces``: one span for each request."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastapi import FastAPI

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROBES = "/(healthz|readyz|metrics)$"


def add_traces(app: "FastAPI", processor: Any = None) -> bool:
    """Send a span of each request if the environment names a collector, and return whether; nothing is imported else.

    The other variables of OpenTelemetry hold too, such as ``OTEL_SERVICE_NAME`` and ``OTEL_TRACES_SAMPLER``. A span has
    method, path and status, and belongs to the trace of the header ``traceparent``; it has no text of a query.

    Args:
        processor: of the spans; by default, it sends them in batches to the collector.
    """
    if processor is None and not any(os.environ.get(name) for name in ENDPOINTS):
        return False
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ValueError(f"{ENDPOINTS[0]}: traces need packages, pip install 'bifocal-vse[traces]'") from error
    name = os.environ.get("OTEL_SERVICE_NAME") or "bifocal"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
    middleware: Any = OpenTelemetryMiddleware
    app.add_middleware(
        middleware, tracer_provider=provider, excluded_urls=PROBES, exclude_spans=["receive", "send"],
        server_request_hook=_without_query,
    )  # fmt: skip
    return True


def _without_query(span: Any, scope: Any) -> None:
    """Remove the part of an address after "?", which can have sentences and ids of items."""
    for name, value in dict(span.attributes or {}).items():
        if name == "url.query":
            span.set_attribute(name, "")
        elif isinstance(value, str):
            span.set_attribute(name, value.partition("?")[0])
