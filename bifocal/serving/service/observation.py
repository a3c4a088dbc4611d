"""Metrics for Prometheus, and a log of one JSON object per request."""

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info

from bifocal.serving.service.served_model import ServedModel

logger = logging.getLogger("bifocal.requests")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
COUNTS = (0, 1, 5, 10, 25, 50, 100)


class JSONFormatter(logging.Formatter):
    """Formatter that writes a record as one line of JSON; ``extra={"fields": ...}`` adds keys.

    Args:
        redact: hides credentials in a text.
    """

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._redact = redact

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
