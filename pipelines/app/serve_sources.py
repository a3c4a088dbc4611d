"""Where ``bifocal serve`` takes models and indexes from."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from bifocal.durable import reading
from bifocal.search.trained_model import ONNX
from bifocal.serving.canary.report import Mode
from bifocal.serving.service.candidate import Candidate
from bifocal.serving.service.live import Deletions, ModelSource, NoModel
from bifocal.serving.service.models import RunSource, SearchRelease, file_states, open_release
from pipelines.app.run_folder import latest_run
from runtime.artifacts import MANIFEST, check_files

if TYPE_CHECKING:
    from runtime.mlflow.registry import RegisteredVersion
    from runtime.mlflow.releases import RegistryDeletions

# Functions import from runtime.mlflow, because MLflow takes seconds.
REGISTRY = "models:/"
SHARE = 0.1
"""Share of the clients for a second release."""


def check_sums(*folders: Path | None) -> None:
    """Raise ``ValueError`` for a file that differs from the manifest of its folder; a folder may
    have no manifest."""
    checked = [folder for folder in folders if folder is not None and (folder / MANIFEST).is_file()]
    with reading(*(folder.parent for folder in checked)):
        for folder in checked:
            check_files(folder)


class CheckedRun(RunSource):
    """A run folder whose files have the hashes of their manifests."""

    _checked = ""
    """Key of the files that were checked last."""

    def check(self) -> None:
        """Check the files of the model, the collection and the index: see ``check_sums``."""
        key = self.key()
        check_sums(self.folder / ONNX, self.collection, self.index)
        self._checked = key

    def load(self) -> SearchRelease:
        """Return the model of the run with its collection."""
        if self.key() != self._checked:
            self.check()
        return super().load()


class RegisteredModel:
    """The version of a registered model that has an alias, such as models:/bifocal@champion."""

    def __init__(self, uri: str) -> None:
        self.name, _, self.alias = uri.removeprefix(REGISTRY).partition("@")
        if not uri.startswith(REGISTRY) or not self.name or not self.alias:
            raise click.UsageError(f"--model is {uri!r}, expected models:/NAME@ALIAS")

    def version(self) -> "RegisteredVersion":
        """Return the version."""
        from runtime.mlflow.registry import get_version

        version = get_version(self.name, self.alias)
        if version is None:
            raise FileNotFoundError(
                f"the registry has no version of {self.name} with the alias {self.alias}"
            )
        return version


class ReleaseSource:
    """A registered model with the collection and the index of its release."""

    reversible = True

    def __init__(self, uri: str, images: Path | None) -> None:
        self.model, self.images = RegisteredModel(uri), images

    @cached_property
    def deletions(self) -> "RegistryDeletions":
        """Deleted items of all versions of the model."""
        from runtime.mlflow.releases import RegistryDeletions

        return RegistryDeletions(self.model.name)

    def key(self) -> str:
        """Return the number of the version with the hash of its release; read the deletions of
        other services too."""
        from runtime.mlflow.releases import read_digest

        self.deletions.refresh()
        version = self.model.version()
        return f"{version.number}-{read_digest(version)}"

    def load(self) -> SearchRelease:
        """Return the version with its collection and index; the downloaded files are in memory or
        mapped."""
        from runtime.mlflow.releases import COLLECTION, INDEX, download_release, read_digest

        version = self.model.version()
        digest = read_digest(version)
        with TemporaryDirectory() as folder:
            graphs, release = download_release(version, digest, Path(folder))
            name = f"{version.model} version {version.number}, release {digest[:12]}"
            model = open_release(graphs, release / COLLECTION, release / INDEX, name, self.images)
        model.version = replace(model.version, number=version.number, release=digest)
        return model


class CandidateSource(ReleaseSource):
    """A release to compare with the champion's: none while it is withdrawn, is the champion, or
    does not exist."""

    reversible = False

    def __init__(self, uri: str, champion: ReleaseSource, images: Path | None) -> None:
        super().__init__(uri, images)
        self._champion = champion

    def key(self) -> str:
        """Return the number of the version with the hash of its release; raise ``NoModel`` without
        a candidate."""
        from runtime.mlflow import VETO
        from runtime.mlflow.aliases import deciding_tags

        try:
            version, key = self.model.version(), super().key()
        except FileNotFoundError as error:
            raise NoModel(str(error)) from error
        veto = deciding_tags(version).get(VETO)
        if veto is not None:
            raise NoModel(f"version {version.number} was {veto}")
        if self._champion.model.name == self.model.name and self._champion.key() == key:
            raise NoModel(f"version {version.number} is the champion")
        return key


class RegistrySource:
    """A registered model with its collection in a folder: a new version comes into use once that is
    embedded."""

    reversible = False  # the times of its files are part of a key

    def __init__(
        self, uri: str, collection: Path, index: Path | None, images: Path | None = None
    ) -> None:
        self.model, self.collection, self.index, self.images = (
            RegisteredModel(uri),
            collection,
            index,
            images,
        )

    def key(self) -> str:
        """Return the number of the version with the state of collection and index."""
        folders = [self.collection, *([] if self.index is None else [self.index])]
        return f"{self.model.version().number}-{file_states(folders)}"

    def load(self) -> SearchRelease:
        """Return the version with the alias, and the collection."""
        version = self.model.version()
        check_sums(self.collection, self.index)
        with TemporaryDirectory() as folder:  # the graphs are in memory once the model is open
            graphs, name = (
                version.download_graphs(Path(folder)),
                f"{version.model} version {version.number}",
            )
            return open_release(graphs, self.collection, self.index, name, self.images)


def open_source(
    folder: Path | None,
    model: str | None,
    collection: Path | None,
    index: Path | None,
    images: Path | None = None,
) -> ModelSource:
    """Return the source that the options name."""
    if model is None:
        return CheckedRun(latest_run(folder), collection, index, images)
    if folder is not None or (index is not None and collection is None):
        raise click.UsageError("--model excludes --run, and --index needs --collection")
    return (
        ReleaseSource(model, images)
        if collection is None
        else RegistrySource(model, collection, index, images)
    )


def open_deletions(source: ModelSource, file: Path | None) -> Deletions:
    """Return the deleted items of ``file``, and of a release those in the registry too."""
    deletions = Deletions(file)
    if not isinstance(source, ReleaseSource):
        return deletions
    source.deletions.refresh()
    source.deletions.add_all(deletions)
    return source.deletions


def open_candidate(
    source: ModelSource, canary: str | None, shadow: str | None, share: float | None
) -> Candidate | None:
    """Return the second release that the options name; None without one."""
    mode: Mode = "shadow" if canary is None else "canary"
    uri = shadow if canary is None else canary
    if uri is None:
        if share is not None:
            raise click.UsageError("--share needs --canary or --shadow")
        return None
    if canary is not None and shadow is not None:
        raise click.UsageError("--canary and --shadow exclude each other")
    if not isinstance(source, ReleaseSource):
        raise click.UsageError(
            f"--{mode} compares releases: it needs --model, without --collection"
        )
    return Candidate(
        CandidateSource(uri, source, source.images), mode, SHARE if share is None else share
    )
