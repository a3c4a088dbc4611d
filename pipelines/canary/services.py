"""Rule of a canary, and the reports of the replicas of a service."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pydantic import TypeAdapter

from bifocal.serving.canary.decision import Rule
from bifocal.serving.canary.report import RUNNING, Report
from bifocal.serving.service.settings import read_keys
from pipelines.yaml_model import load_yaml_model

RULE = Path(__file__).with_name("canary.yaml")
SECONDS = 20.0


@dataclass(frozen=True)
class State:
    """State of a comparison."""

    stopped: str | None
    report: Report | None


def load_rule(path: Path | None = None) -> Rule:
    """Read a rule, by default ``canary.yaml``."""
    return load_yaml_model(path or RULE, TypeAdapter(Rule).validate_python)


def read_reports(services: Sequence[str]) -> State:
    """Return the sum of the reports of the replicas of a service; ``BIFOCAL_API_KEYS`` has the key."""
    stopped, reports = None, []
    for service in services:
        content = _get(f"{service.rstrip('/')}/api/v1/comparison")
        if content["state"] != RUNNING:
            stopped = str(content["state"])
        if content["report"] is not None:
            reports.append(Report.from_json(content["report"]))
    return State(stopped, reduce(add, reports) if reports else None)


def _get(address: str) -> dict[str, Any]:
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"{address!r} is no address of a service, such as http://localhost:8080")
    keys = sorted(read_keys(os.environ)[0])
    request = Request(address, headers={"authorization": f"Bearer {keys[0]}"} if keys else {})
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
