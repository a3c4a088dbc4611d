"""Clients of the service without a socket."""

from starlette.testclient import TestClient

from bifocal.serving.service.app import create_app
from bifocal.serving.service.settings import Settings
from tests.bifocal.serving.runs import LoadedSource

SEARCH = "/api/v1/search"


def client(source: LoadedSource, **settings: object) -> TestClient:
    """Return a client of a service with these settings."""
    return TestClient(create_app(source, Settings(**settings)), base_url="http://localhost")
