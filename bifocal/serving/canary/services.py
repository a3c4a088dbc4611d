"""Reports of the replicas of a service."""

import json
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bifocal.serving.canary.report import RUNNING, Report

SECONDS = 20.0


def read_reports(services: Sequence[str], key: str | None = None) -> tuple[Report | None, str | None]:
    """Return the sum of the reports of the services at these addresses, and why one compares no candidate now."""
    stopped, reports = None, []
    for service in services:
        content = _get(f"{service.rstrip('/')}/api/v1/comparison", key)
        if content["state"] != RUNNING:
            stopped = str(content["state"])
        if content["report"] is not None:
            reports.append(Report.from_json(content["report"]))
    return (reduce(add, reports) if reports else None), stopped


def _get(address: str, key: str | None) -> dict[str, Any]:
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"{address!r} is not an address of a service, such as http://localhost:8080")
    request = Request(address, headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            content = json.load(answer)
    except HTTPError as error:
        if error.code == 404:
            raise ValueError(f"{address}: this service was started without --canary and --shadow") from error
        raise
    if not isinstance(content, dict) or not {"state", "report"} <= set(content):
        raise ValueError(f"{address} answers with another text than a comparison")
    return content
