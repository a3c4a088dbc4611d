"""Reports of the replicas of a service."""

from collections.abc import Sequence
from functools import reduce
from operator import add
from pathlib import Path
from socket import IPPROTO_TCP, gaierror, getaddrinfo
from typing import Any
from urllib.parse import urlsplit

from bifocal.durable import write_json
from bifocal.http import HTTPStatusError, request
from bifocal.onnx.files import parse_json, read_json
from bifocal.serving.canary.report import RUNNING, Report

DNS = "dns+http://"


def read_reports(
    services: Sequence[str], key: str | None = None, folder: Path | None = None
) -> tuple[Report | None, str | None]:
    """Return the sum of the reports of the services at these addresses, and why one compares no
    candidate now.

    Args:
        services: addresses; ``dns+http://name:port`` stands for all addresses of a name, such as
            pods.
        folder: keeps the last report of each process, so that the sum has the counts of processes
            that ended.
    """
    stopped, reports = None, []
    for service in [address for name in services for address in _addresses(name)]:
        try:
            content = _get(f"{service.rstrip('/')}/api/v1/comparison", key)
        except OSError as error:  # a pod that ends may close the connection without an answer
            stopped = f"{service} does not answer: {error}"
            if folder is None:
                raise OSError(stopped) from error
            continue
        if content["state"] != RUNNING:
            stopped = str(content["state"])
        if content["report"] is not None:
            reports.append(Report.from_json(content["report"]))
    if folder is not None:
        reports = _kept(reports, folder)
    return (reduce(add, reports) if reports else None), stopped


def _kept(reports: Sequence[Report], folder: Path) -> list[Report]:
    """Write reports, and return all reports of the folder on the same versions, the given ones
    first."""
    folder.mkdir(parents=True, exist_ok=True)
    for report in reports:
        write_json(folder / f"{report.id}.json", report.to_json())
    present = {report.id for report in reports}
    previous = [Report.from_json(read_json(file)) for file in sorted(folder.glob("*.json"))]
    previous = [report for report in previous if report.id not in present]
    if not reports:
        return []
    (first, *_) = reports
    return [*reports, *(report for report in previous if report.difference(first) is None)]


def _addresses(service: str) -> list[str]:
    if not service.startswith(DNS):
        return [service]
    parts = urlsplit(service.removeprefix("dns+"))
    try:
        found = getaddrinfo(parts.hostname, parts.port or 80, proto=IPPROTO_TCP)
    # a headless Service without a ready pod: the name itself is the service that does not answer
    except gaierror:
        return [f"http://{parts.netloc}"]
    hosts = sorted({str(entry[4][0]) for entry in found})
    return [f"http://{f'[{host}]' if ':' in host else host}:{parts.port or 80}" for host in hosts]


def _get(address: str, key: str | None) -> dict[str, Any]:
    try:
        content = parse_json(request(address, token=key))
    except HTTPStatusError as error:
        if error.status == 404:
            raise ValueError(
                f"{address}: this service was started without --canary and --shadow"
            ) from error
        raise
    except ValueError as error:
        raise ValueError(
            f"{address}: {error}; expected the address of a service, such as http://localhost:8080"
        ) from error
    if not isinstance(content, dict) or not {"state", "report"} <= set(content):
        raise ValueError(f"{address} answers with another text than a comparison")
    return content
