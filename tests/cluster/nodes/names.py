"""Names of services and pods, as CoreDNS answers them: UDP, addresses of version 4."""

import socket
import struct
import time
from contextlib import suppress
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

SUFFIX = "svc.cluster.local"
SECONDS = 1.0
"""Time for which the names of the API server hold."""


class Names:
    """Names of a cluster, of its services and of the pods behind services without an address."""

    def __init__(self, configuration: Any) -> None:
        api = client.ApiClient(configuration)
        self.core, self.discovery = client.CoreV1Api(api), client.DiscoveryV1Api(api)
        self.names: dict[str, list[str]] = {}
        self.until = 0.0

    def serve(self, address: str) -> None:
        """Answer at port 53 of ``address``."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
            server.bind((address, 53))
            while True:
                query, sender = server.recvfrom(4096)
                server.sendto(self.answer(query), sender)

    def answer(self, query: bytes) -> bytes:
        """Return the answer to a query with one question."""
        labels, end = [], 12
        while length := query[end]:
            labels.append(query[end + 1 : end + 1 + length].decode())
            end += 1 + length
        (kind,) = struct.unpack(">H", query[end + 1 : end + 3])
        found = self.addresses(".".join(labels).lower())
        addresses = (found or []) if kind == 1 else []
        flags = 0x8400 | (0 if found else 3)
        header = query[:2] + struct.pack(">5H", flags, 1, len(addresses), 0, 0)
        records = [
            b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(address)
            for address in addresses
        ]
        return b"".join([header, query[12 : end + 5], *records])

    def addresses(self, name: str) -> list[str] | None:
        """Return the addresses of a name, None if it has none."""
        if time.monotonic() > self.until:
            # The last names hold while the API server does not answer.
            with suppress(client.ApiException, HTTPError, OSError):
                self.names = self.read()
            self.until = time.monotonic() + SECONDS
        return self.names.get(name)

    def read(self) -> dict[str, list[str]]:
        """Return the addresses of each name."""
        names: dict[str, list[str]] = {}
        for service in self.core.list_service_for_all_namespaces().items:
            if service.spec.cluster_ip not in (None, "", "None"):
                names[_name(service)] = [service.spec.cluster_ip]
        with_address = set(names)
        for part in self.discovery.list_endpoint_slice_for_all_namespaces().items:
            service = (part.metadata.labels or {}).get("kubernetes.io/service-name", "")
            name = f"{service}.{part.metadata.namespace}.{SUFFIX}"
            for endpoint in part.endpoints or ():
                if endpoint.conditions and endpoint.conditions.ready is False:
                    continue
                if endpoint.hostname:
                    names.setdefault(f"{endpoint.hostname}.{name}", []).extend(endpoint.addresses)
                if name not in with_address:
                    names.setdefault(name, []).extend(endpoint.addresses)
        return names


def _name(service: Any) -> str:
    return f"{service.metadata.name}.{service.metadata.namespace}.{SUFFIX}"
