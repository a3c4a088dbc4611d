"""Metrics for Prometheus, a log of one line per request (a JSON object, or a text for a terminal),
and traces."""

import logging
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from bifocal.durable import json_text
from bifocal.progress import printable
from bifocal.version import install

if TYPE_CHECKING:
    from fastapi import FastAPI

logger = logging.getLogger("bifocal.requests")
QUIET = (
    "/",
    "/page/{name}",
    "/api/v1/info",
    "/api/v1/thumbnail",
    "/healthz",
    "/readyz",
    "/metrics",
)
"""Routes whose answers a log on a terminal leaves out."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROBES = "/(healthz|readyz|metrics)$"
COUNTS = (0, 1, 5, 10, 25, 50, 100)


class RedactingFormatter(logging.Formatter):
    """Formatter that hides credentials in its lines by ``redact``, once for each of the words that
    repeat."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._redact = lru_cache(redact)


class JSONFormatter(RedactingFormatter):
    """Formatter that writes a record as one line of JSON; ``extra={"fields": ...}`` adds keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"level": record.levelname.lower(), "event": record.getMessage()}
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        shown = {
            key: self._redact(value) if isinstance(value, str) else value
            for key, value in entry.items()
        }
        return json_text({"time": moment, **shown}, ensure_ascii=True)


class TextFormatter(RedactingFormatter):
    """Formatter that writes a record as one line for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = dict(getattr(record, "fields", {}))
        parts = [time.strftime("%H:%M:%S", time.localtime(record.created))]
        if record.levelno >= logging.WARNING:
            parts.append(record.levelname.lower())
        if record.name == logger.name:
            method, route, status, duration = (
                fields.pop(key) for key in ("method", "route", "status", "ms")
            )
            parts.append(f"{method} {route} {status} {duration:.0f} ms")
        else:
            parts.append(record.getMessage())
        parts += [f"{key}={value}" for key, value in fields.items()]
        # A sentence of a client must not move the cursor, or start another line.
        line = printable(" ".join(parts))
        return self._redact(
            f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line
        )


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a terminal shows a record: not files of the page, thumbnails and probes that
    are answered."""
    fields = getattr(record, "fields", {})
    return fields.get("route") not in QUIET or fields["status"] >= 400


class Metrics:
    """Metrics of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ("route", "status")
        self.requests = Histogram(
            "bifocal_request_seconds",
            "Latency of requests",
            labels,
            buckets=SECONDS,
            registry=registry,
        )
        self.results = Histogram(
            "bifocal_results", "Results of searches", buckets=COUNTS, registry=registry
        )
        self.nothing_found = Counter(
            "bifocal_nothing_found", "First pages that found nothing", registry=registry
        )
        self.active = Gauge(
            "bifocal_active_requests", "Requests that are being answered", registry=registry
        )
        self.items = Gauge("bifocal_items", "Items that are searched", registry=registry)
        self.swaps = Counter(
            "bifocal_swaps", "Models with their index that came into use", registry=registry
        )
        self.model = Info("bifocal_model", "Model in use", registry=registry)

    def use(self, model: str, sha256: str, items: int) -> None:
        """Record the model that came into use, and the number of its items."""
        self.swaps.inc()
        self.items.set(items)
        self.model.info({"model": model, "sha256": sha256})


def log_request(
    metrics: Metrics, state: dict[str, Any], method: str, route: str, status: int, start: float
) -> None:
    """Count a request, and log it with the ``log`` of its route in ``state``; ``route`` is a
    template of the path."""
    seconds = time.perf_counter() - start
    metrics.requests.labels(route, str(status)).observe(seconds)
    fields = {"method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
    logger.info("request", extra={"fields": fields | state.get("log", {})})


def add_traces(app: "FastAPI", processor: Any = None) -> bool:
    """Send a span of each request by OpenTelemetry if the environment names a collector, and return
    whether.

    Needs the extra ``traces`` then. The other variables of OpenTelemetry hold too, such as
    ``OTEL_SERVICE_NAME`` and ``OTEL_TRACES_SAMPLER``. A span has method, path and status, and
    belongs to the trace of the header ``traceparent``; it has no text of a query.

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
        raise ValueError(f"{ENDPOINTS[0]}: traces need packages: {install('traces')}") from error
    name = os.environ.get("OTEL_SERVICE_NAME") or "bifocal"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
    middleware: Any = OpenTelemetryMiddleware
    app.add_middleware(
        middleware,
        tracer_provider=provider,
        excluded_urls=PROBES,
        exclude_spans=["receive", "send"],
        server_request_hook=_without_query,
    )
    return True


def _without_query(span: Any, scope: Any) -> None:
    """Remove the part of an address after "?", which can have sentences and ids of items."""
    for name, value in dict(span.attributes or {}).items():
        if name == "url.query":
            span.set_attribute(name, "")
        elif isinstance(value, str):
            span.set_attribute(name, value.partition("?")[0])
