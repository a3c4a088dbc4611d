"""Where ``bifocal serve`` takes models and indexes from."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from bifocal.serving.service.current import Source
from bifocal.serving.service.engine import Engine
from bifocal.serving.service.sources import RunSource, file_states, open_engine
from pipelines.app.run_folder import latest_run

if TYPE_CHECKING:
    from runtime.mlflow.registry import Version

REGISTRY = "models:/"


class RegistrySource:
    """A registered model with the collection that it embedded.

    Args:
        uri: "models:/NAME@ALIAS".
        collection: folder of the collection; a new model comes into use when the collection of this model is there.
        index: folder of the index; None for exact search.
        threads: threads of an operation of the model.
    """

    def __init__(self, uri: str, collection: Path, index: Path | None, threads: int = 1) -> None:
        name, _, alias = uri.removeprefix(REGISTRY).partition("@")
        if not uri.startswith(REGISTRY) or not name or not alias:
            raise click.UsageError(f"--model is {uri!r}, expected models:/NAME@ALIAS")
        self.name, self.alias, self.threads = name, alias, threads
        self.collection, self.index = collection, index

    def key(self) -> str:
        """Return the number of the version with the state of collection and index."""
        folders = [self.collection, *([] if self.index is None else [self.index])]
        return f"{self._version().number}-{file_states(folders)}"

    def load(self) -> Engine:
        """Return the version with the alias, and the collection.

        Raises:
            OSError: the registry cannot be reached.
            ValueError: collection or index belong to another model.
        """
        version = self._version()
        with TemporaryDirectory() as folder:  # the graphs are in memory once the engine is open
            graphs = version.download_graphs(Path(folder))
            return open_engine(
                graphs, self.collection, self.index, f"{self.name} version {version.number}", self.threads
            )

    def _version(self) -> "Version":
        from runtime.mlflow.registry import get_version  # imports mlflow

        version = get_version(self.name, self.alias)
        if version is None:
            raise FileNotFoundError(f"the registry has no version of {self.name} with the alias {self.alias}")
        return version


def open_source(folder: Path | None, model: str | None, collection: Path | None, index: Path | None) -> Source:
    """Return the source that the options name.

    Raises:
        click.UsageError: the options contradict each other.
        FileNotFoundError: there is no such run.
    """
    if model is None:
        return RunSource(latest_run(folder), collection, index)
    if folder is not None or collection is None:
        raise click.UsageError("--model needs --collection, and excludes --run")
    return RegistrySource(model, collection, index)
