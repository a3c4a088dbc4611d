"""Metrics for Prometheus, and a log of one line per request: a JSON object, or a text for a terminal."""

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from bifocal.serving.service.served_model import ServedModel

logger = logging.getLogger("bifocal.requests")
QUIET = ("/", "/page/{name}", "/api/v1/info", "/api/v1/thumbnail", "/healthz", "/readyz", "/metrics")
"""Routes whose answers a log on a terminal leaves out."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
COUNTS = (0, 1, 5, 10, 25, 50, 100)


class RedactingFormatter(logging.Formatter):
    """Formatter that hides credentials in its lines by ``redact``."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._redact = redact


class JSONFormatter(RedactingFormatter):
    """Formatter that writes a record as one line of JSON; ``extra={"fields": ...}`` adds keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        entry |= getattr(record, "fields", {})
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(
            {key: self._redact(value) if isinstance(value, str) else value for key, value in entry.items()}
        )


class TextFormatter(RedactingFormatter):
    """Formatter that writes a record as one line for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        fields = dict(getattr(record, "fields", {}))
        parts = [time.strftime("%H:%M:%S", time.localtime(record.created))]
        if record.levelno >= logging.WARNING:
            parts.append(record.levelname.lower())
        if record.name == logger.name:
            method, route, status, duration = (fields.pop(key) for key in ("method", "route", "status", "ms"))
            parts.append(f"{method} {route} {status} {duration:.0f} ms")
        else:
            parts.append(record.getMessage())
        parts += [f"{key}={value}" for key, value in fields.items()]
        # A sentence of a client must not move the cursor, or start another line.
        line = "".join(letter if letter.isprintable() else "?" for letter in " ".join(parts))
        return self._redact(f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line)


def is_news(record: logging.LogRecord) -> bool:
    """Return whether a terminal shows a record: not files of the page, thumbnails and probes that are answered."""
    fields = getattr(record, "fields", {})
    if record.name.startswith("uvicorn"):
        return record.levelno >= logging.WARNING
    return fields.get("route") not in QUIET or fields["status"] >= 400


class Metrics:
    """Metrics of one service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        labels = ("route", "status")
        self.requests = Histogram(
            "bifocal_request_seconds", "Latency of requests", labels, buckets=SECONDS, registry=registry
        )
        self.results = Histogram("bifocal_results", "Results of searches", buckets=COUNTS, registry=registry)
        self.nothing_found = Counter("bifocal_nothing_found", "First pages that found nothing", registry=registry)
        self.active = Gauge("bifocal_active_requests", "Requests that are being answered", registry=registry)
        self.items = Gauge("bifocal_items", "Items that are searched", registry=registry)
        self.swaps = Counter("bifocal_swaps", "Models with their index that came into use", registry=registry)
        self.model = Info("bifocal_model", "Model in use", registry=registry)

    def use(self, served: ServedModel, items: int) -> None:
        """Record the served model that came into use, and the number of its items."""
        self.swaps.inc()
        self.items.set(items)
        self.model.info({"model": served.version.model, "sha256": served.version.model_hash})


def log_request(metrics: Metrics, state: dict[str, Any], method: str, route: str, status: int, start: float) -> None:
    """Count a request, and log it with the ``log`` of its route in ``state``; ``route`` is a template of the path."""
    seconds = time.perf_counter() - start
    metrics.requests.labels(route, str(status)).observe(seconds)
    fields = {"method": method, "route": route, "status": status, "ms": round(1000 * seconds, 1)}
    logger.info("request", extra={"fields": fields | state.get("log", {})})
