"""A run of the demo's model with a collection of its images, and its service as a process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service.models import RunSource, SearchRelease
from tests.bifocal.serving.runs import write_run
from tests.bifocal.serving.server import Server, running_server


@pytest.fixture(scope="package")
def run_folder(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the demo's model, and a collection with metadata and regions."""
    return write_run(demo, tmp_path_factory.mktemp("served") / "run", regions=True)


@pytest.fixture(scope="package")
def server(run_folder: Path) -> Iterator[Server]:
    """The service of the run."""
    with running_server(run_folder) as running:
        yield running


@pytest.fixture(scope="package")
def served(run_folder: Path) -> SearchRelease:
    """The model of the run with its collection, loaded once."""
    return RunSource(run_folder).load()
