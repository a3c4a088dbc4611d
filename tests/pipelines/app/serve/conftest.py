"""The demo's run folder, the service of it as a process, and as an app."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bifocal.trained import TrainedModel
from pipelines.app.demo_folder import unpack
from tests.mlflow_server import free_port
from tests.pipelines.app.serve.server import Server


@pytest.fixture(scope="package")
def demo(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """The shipped model with its 256 scenes."""
    return unpack(tmp_path_factory.mktemp("demo") / "run")


@pytest.fixture(scope="package")
def server(demo: TrainedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service of a copy of the run, which tests may replace."""
    folder = tmp_path_factory.mktemp("served")
    run = Path(shutil.copytree(demo.directory, folder / "run"))
    options = ("--run", run, "--deletions", folder / "deleted.jsonl", "--poll", 0.2)
    running = Server(free_port(), folder / "log.jsonl", *options)
    running.start()
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.kill()
