"""Former releases of a registered model, which no alias needs any more."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import PurePosixPath

import mlflow
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from runtime.mlflow.connection import connect, mlflow_errors_as_oserror
from runtime.mlflow.promotion.aliases import alias_lock
from runtime.mlflow.promotion.lock import check_lock
from runtime.mlflow.registry import RELEASE_TAG, Version, registered_versions
from runtime.mlflow.releases.release import DESCRIPTION
from runtime.mlflow.releases.store import FOLDER, LOCK_TIMEOUT

UNNEEDED = "release.unneeded."
"""Tag of a version with the time at which a release of it was first found unneeded."""
HASH = "hash."


@dataclass(frozen=True)
class FormerRelease:
    """A release that no alias needs, since a time; None if it was needed until now."""

    version: Version
    digest: str
    since: datetime | None

    def is_due(self, now: datetime, days: int) -> bool:
        """Whether it has been unneeded for ``days``, so that no service or job still reads it."""
        return self.since is not None and self.since <= now - timedelta(days=days)

    def size(self) -> int:
        """Return the bytes of its files."""
        with mlflow_errors_as_oserror():
            return sum(_sizes(connect(), self.version.run_id, f"{FOLDER}/{self.digest}"))


def former_releases(model: str, newest: int) -> list[FormerRelease]:
    """Return the releases that are not needed.

    A version needs the release that its tag names if it has an alias, is among the ``newest`` versions, or was accepted
    and waits for its promotion.
    """
    with mlflow_errors_as_oserror():
        client = connect()
        versions = sorted(registered_versions(model), key=lambda version: -int(version.version))
        aliases = _aliases(client, model)
        kept = [
            version
            for rank, version in enumerate(versions)
            if str(version.version) in aliases or rank < newest or version.tags.get("promotion") == "accepted"
        ]
        needed = {(version.run_id, version.tags.get(RELEASE_TAG)) for version in kept}
        found = []
        for version in versions:
            for entry in client.list_artifacts(str(version.run_id), FOLDER):
                digest = PurePosixPath(entry.path).name
                if entry.is_dir and (version.run_id, digest) not in needed:
                    since = version.tags.get(UNNEEDED + digest[:16])
                    former = Version(model, int(version.version), str(version.run_id))
                    found.append(FormerRelease(former, digest, datetime.fromisoformat(since) if since else None))
    return found


def lineage(model: str, newest: int) -> set[str]:
    """Return the hashes of the artifacts that the versions with an alias and the ``newest`` ones were made of."""
    with mlflow_errors_as_oserror():
        versions = sorted(registered_versions(model), key=lambda version: -int(version.version))
        aliases = _aliases(connect(), model)
    kept = [version for rank, version in enumerate(versions) if str(version.version) in aliases or rank < newest]
    return {value for version in kept for key, value in version.tags.items() if key.startswith(HASH)}


def delete_former_releases(model: str, newest: int, now: datetime, days: int) -> list[FormerRelease]:
    """Delete the releases that have been unneeded for ``days``, and note the time of the others; return the deleted.

    The lock of promotions is held: no alias moves meanwhile, and no release is logged again.
    """
    with alias_lock(model, LOCK_TIMEOUT):
        former, client = former_releases(model, newest), connect()
        with mlflow_errors_as_oserror():
            _mark(client, model, former, now)
            due = [release for release in former if release.is_due(now, days)]
            for release in due:
                check_lock(model)
                _delete(client, release)
    return due


def _mark(client: mlflow.MlflowClient, model: str, former: Collection[FormerRelease], now: datetime) -> None:
    """Note when releases were first unneeded; forget it for a release that is needed again."""
    marks = {(release.version.number, UNNEEDED + release.digest[:16]) for release in former}
    for version in registered_versions(model):
        for tag in version.tags:
            if tag.startswith(UNNEEDED) and (int(version.version), tag) not in marks:
                client.delete_model_version_tag(model, str(version.version), tag)
    for release in former:
        if release.since is None:
            tag = UNNEEDED + release.digest[:16]
            client.set_model_version_tag(model, str(release.version.number), tag, now.isoformat())


def _delete(client: mlflow.MlflowClient, release: FormerRelease) -> None:
    """Delete a release; first the tag and the description, so that a killed deletion leaves no release to load."""
    version, folder = release.version, f"{FOLDER}/{release.digest}"
    tags = client.get_model_version(version.model, str(version.number)).tags
    if tags.get(RELEASE_TAG) == release.digest:
        client.delete_model_version_tag(version.model, str(version.number), RELEASE_TAG)
    repository = get_artifact_repository(client.get_run(version.run_id).info.artifact_uri)
    if any(entry.path == f"{folder}/{DESCRIPTION}" for entry in client.list_artifacts(version.run_id, folder)):
        repository.delete_artifacts(f"{folder}/{DESCRIPTION}")
    repository.delete_artifacts(folder)
    client.delete_model_version_tag(version.model, str(version.number), UNNEEDED + release.digest[:16])


def _aliases(client: mlflow.MlflowClient, model: str) -> set[str]:
    if not client.search_registered_models(f"name = '{model}'"):
        return set()
    return set(map(str, client.get_registered_model(model).aliases.values()))


def _sizes(client: mlflow.MlflowClient, run_id: str, path: str) -> Iterator[int]:
    for entry in client.list_artifacts(run_id, path):
        if entry.is_dir:
            yield from _sizes(client, run_id, entry.path)
        else:
            yield int(entry.file_size or 0)
