"""Previous releases of a registered model, and models of its previous versions, which no alias
needs any more."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import filterfalse
from pathlib import PurePosixPath

import mlflow
from mlflow.entities.model_registry import ModelVersion
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from runtime.mlflow.aliases import alias_lock
from runtime.mlflow.connection import connect, list_folder, mlflow_errors_as_oserror
from runtime.mlflow.lock import check_lock
from runtime.mlflow.registry import (
    DELETED_TAG,
    ONNX_TAG,
    RELEASE_TAG,
    RegisteredVersion,
    registered_versions,
    version_tags,
)
from runtime.mlflow.releases import DESCRIPTION, FOLDER, LOCK_TIMEOUT
from runtime.retention import reachable

UNNEEDED, MODEL_UNNEEDED = "release.unneeded.", "model.unneeded"
"""Tags of a version with the time at which a release of it, or its model, was first found
unneeded."""
HASH = "hash."


@dataclass(frozen=True)
class PreviousFiles:
    """A release, or a model, that no alias needs since a time.

    Attributes:
        digest: hash of the release; "" for the model.
        since: None if they were needed until now.
    """

    version: RegisteredVersion
    digest: str
    since: datetime | None

    def __str__(self) -> str:
        return (
            f"{f'release {self.digest[:12]}' if self.digest else 'model'} of version "
            f"{self.version.number}"
        )

    @property
    def tag(self) -> str:
        """Name of the tag with the time."""
        return UNNEEDED + self.digest[:16] if self.digest else MODEL_UNNEEDED

    def is_due(self, now: datetime, days: int) -> bool:
        """Whether they have been unneeded for ``days``, so that no service or job still reads
        them."""
        return self.since is not None and self.since <= now - timedelta(days=days)

    def size(self) -> int:
        """Return the bytes of the files."""
        with mlflow_errors_as_oserror():
            return sum(
                _sizes(self.repository(), f"{FOLDER}/{self.digest}" if self.digest else None)
            )

    def repository(self) -> ArtifactRepository:
        """Return the artifacts of the version's run, or the model."""
        client, version = connect(), self.version
        if self.digest:
            return get_artifact_repository(client.get_run(version.run_id).info.artifact_uri)
        return get_artifact_repository(
            client.get_model_version_download_uri(version.model, str(version.number))
        )


def previous_files(model: str, newest: int) -> list[PreviousFiles]:
    """Return the releases and models that are not needed."""
    found = []
    with mlflow_errors_as_oserror():
        client, (versions, needed) = connect(), _needed(model, newest)
        for version in filterfalse(_is_cleaned, versions):
            run_id = str(version.run_id)
            names = map(PurePosixPath, list_folder(client, run_id, FOLDER))
            for digest in [*(path.name for path in names), ""]:
                if f"{run_id}/{digest}" not in needed and (
                    digest or _has_own_model(client, version)
                ):
                    previous = RegisteredVersion(model, int(version.version), run_id)
                    since = version.tags.get(PreviousFiles(previous, digest, None).tag)
                    time = datetime.fromisoformat(since) if since else None
                    found.append(PreviousFiles(previous, digest, time))
    return found


def needed_by_versions(model: str, newest: int) -> set[str]:
    """Return what the versions of a registered model need, as ``runtime.retention`` asks for it."""
    with mlflow_errors_as_oserror():
        return _needed(model, newest)[1]


def delete_previous_files(model: str, newest: int, now: datetime, days: int) -> list[PreviousFiles]:
    """Delete the releases and models that have been unneeded for ``days``, and note the time of the
    others; return the deleted.

    The lock of promotions is held: no alias moves meanwhile, and no release is logged again.
    """
    with alias_lock(model, LOCK_TIMEOUT):
        previous, client = previous_files(model, newest), connect()
        with mlflow_errors_as_oserror():
            _mark(client, model, previous, now)
            due = [files for files in previous if files.is_due(now, days)]
            for files in due:
                check_lock(model)
                if files.digest:
                    _delete_release(client, files)
                else:
                    _delete_model(client, files, now)
    return due


def _needed(model: str, newest: int) -> tuple[list[ModelVersion], set[str]]:
    """Return all versions, and what they need.

    A version is needed if it has an alias, is among the ``newest`` ones, or was accepted and waits
    for its promotion. It needs its model (``RUN/``), the release that its tag names (``RUN/HASH``)
    and the artifacts that it was made of (``HASH``). A version of another registered model needs
    the model of its run.
    """
    versions = sorted(registered_versions(model), key=lambda version: -int(version.version))
    aliases, needs, roots = _aliases(connect(), model), dict[str, set[str]](), set[str]()
    for rank, version in enumerate(versions):
        tags, run = version.tags, f"{version.run_id}/"
        made_of = {value for name, value in tags.items() if name.startswith(HASH)}
        needs[str(version.version)] = {run, f"{run}{tags.get(RELEASE_TAG)}", *made_of}
        is_accepted = tags.get("promotion") == "accepted"
        if str(version.version) in aliases or rank < newest or is_accepted:
            roots.add(str(version.version))
    return versions, reachable(roots, needs.items()) - roots


def _is_cleaned(version: ModelVersion) -> bool:
    """Whether nothing is left to delete; a killed deletion leaves a mark."""
    return DELETED_TAG in version.tags and not any(
        tag.startswith((UNNEEDED, MODEL_UNNEEDED)) for tag in version.tags
    )


def _has_own_model(client: mlflow.MlflowClient, version: ModelVersion) -> bool:
    """Whether bifocal registered the version, and no other registered model has its model too."""
    same_run = client.search_model_versions(f"run_id = '{version.run_id}'")
    return ONNX_TAG in version.tags and all(other.name == version.name for other in same_run)


def _mark(
    client: mlflow.MlflowClient, model: str, previous: Collection[PreviousFiles], now: datetime
) -> None:
    """Note when files were first unneeded; forget it for files that are needed again."""
    marks = {(files.version.number, files.tag) for files in previous}
    for version in registered_versions(model):
        for tag in version.tags:
            if (
                tag.startswith((UNNEEDED, MODEL_UNNEEDED))
                and (int(version.version), tag) not in marks
            ):
                client.delete_model_version_tag(model, str(version.version), tag)
    for files in previous:
        if files.since is None:
            client.set_model_version_tag(
                model, str(files.version.number), files.tag, now.isoformat()
            )


def _delete_release(client: mlflow.MlflowClient, release: PreviousFiles) -> None:
    """Delete a release; first the tag and the description, so that a killed deletion leaves no
    release to load."""
    version, folder = release.version, f"{FOLDER}/{release.digest}"
    if version_tags(version).get(RELEASE_TAG) == release.digest:
        client.delete_model_version_tag(version.model, str(version.number), RELEASE_TAG)
    repository = release.repository()
    if version.has_file(f"{folder}/{DESCRIPTION}"):
        repository.delete_artifacts(f"{folder}/{DESCRIPTION}")
    repository.delete_artifacts(folder)
    client.delete_model_version_tag(version.model, str(version.number), release.tag)


def _delete_model(client: mlflow.MlflowClient, files: PreviousFiles, now: datetime) -> None:
    """Delete a model, unless a registration has moved an alias to its version since; first, tag the
    version."""
    model, number = files.version.model, str(files.version.number)
    client.set_model_version_tag(model, number, DELETED_TAG, now.isoformat())
    if number in _aliases(client, model):
        client.delete_model_version_tag(model, number, DELETED_TAG)
    else:
        files.repository().delete_artifacts()
    client.delete_model_version_tag(model, number, files.tag)


def _aliases(client: mlflow.MlflowClient, model: str) -> set[str]:
    if not client.search_registered_models(f"name = '{model}'"):
        return set()
    return set(map(str, client.get_registered_model(model).aliases.values()))


def _sizes(repository: ArtifactRepository, path: str | None) -> Iterator[int]:
    for entry in repository.list_artifacts(path):
        if entry.is_dir:
            yield from _sizes(repository, entry.path)
        else:
            yield int(entry.file_size or 0)
