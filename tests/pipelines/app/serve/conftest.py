"""The demo's model with a collection of its images, its service as a process, and its static copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bifocal.search.trained_model import TrainedModel
from bifocal.serving.service.served_model import ServedModel
from pipelines.app.demo_folder import unpack
from tests.mlflow_server import free_port
from tests.pipelines.app.serve.collections import write_run
from tests.pipelines.app.serve.server import Server
from tests.pipelines.app.serve.static_copy import write_copy


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """The shipped model with its 256 scenes."""
    return unpack(tmp_path_factory.mktemp("demo") / "run")


@pytest.fixture(scope="package")
def run_folder(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the demo's model, and a collection with metadata and regions."""
    return write_run(demo, tmp_path_factory.mktemp("served") / "run", regions=True)


@pytest.fixture(scope="package")
def server(run_folder: Path) -> Iterator[Server]:
    """The service of the run."""
    log, deletions = run_folder.with_name("log.jsonl"), run_folder.with_name("deleted.jsonl")
    running = Server(free_port(), log, "--run", run_folder, "--deletions", deletions, "--poll", 0.2)
    running.start()
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()


@pytest.fixture(scope="package")
def copied(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ServedModel, str]:
    """The static copy, the served model of the service, and the output of the command."""
    return write_copy(run_folder, tmp_path_factory.mktemp("copied"))
