"""Releases: a version with its collection, index and hubness bank, as ``releases/<hash>`` of its run; the tag
``release`` has the hash of ``release.json``, which hashes every file, so an alias moves all.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
import pyarrow.parquet as pq

from bifocal.onnx.files import hash_of_files, model_hash
from bifocal.search.collection.format import ITEMS
from runtime.artifacts import hash_files
from runtime.mlflow.connection import connect, mlflow_errors_as_oserror
from runtime.mlflow.promotion.lock import check_lock, promotion_lock
from runtime.mlflow.registry import ONNX_TAG, RELEASE_TAG, RegisteredVersion
from runtime.mlflow.releases.deletions import read_deletions, without_deleted
from runtime.mlflow.releases.release import (
    BANK,
    COLLECTION,
    DESCRIPTION,
    HUBNESS,
    INDEX,
    Release,
    describe_release,
)

FOLDER = "releases"
LOCK_TIMEOUT = 3600.0
"""Seconds to wait for a promotion in progress."""


def log_release(
    version: RegisteredVersion, onnx: Path, collection: Path, index: Path, embedding: Path, *, former: str | None = None
) -> bool:
    """Give a version the release of these artifacts, without the deleted items of the model, unless it has equal
    contents (``Release.equals``); return whether files were logged. ``former`` is the release that was updated.

    Raises:
        OSError: the version meanwhile has another release than ``former``.
    """
    with mlflow_errors_as_oserror(), TemporaryDirectory() as folder:
        collection, index = without_deleted(version.model, collection, index, Path(folder) / "kept")
        release = describe_release(onnx, collection, index, embedding)
        client, target = connect(), f"{FOLDER}/{release.digest}"
        _check_model(version, release, hash_of_files(version.graph_files(Path(folder) / "model")))
        present = client.get_model_version(version.model, str(version.number)).tags.get(RELEASE_TAG)
        if present and _read_release(version, present, Path(folder) / "present").equals(release):
            return False
        logged = any(entry.path == f"{target}/{DESCRIPTION}" for entry in client.list_artifacts(version.run_id, target))
        if not logged:
            client.log_artifacts(version.run_id, str(collection), f"{target}/{COLLECTION}")
            client.log_artifacts(version.run_id, str(index), f"{target}/{INDEX}")
            if f"{HUBNESS}/{BANK}" in release.files:
                client.log_artifact(version.run_id, str(embedding / BANK), f"{target}/{HUBNESS}")
            release.write(Path(folder))
            client.log_artifact(version.run_id, str(Path(folder) / DESCRIPTION), target)
        with promotion_lock(version.model, LOCK_TIMEOUT):
            # A call of 'clean' may have deleted the files since.
            if not any(
                entry.path == f"{target}/{DESCRIPTION}" for entry in client.list_artifacts(version.run_id, target)
            ):
                raise OSError(f"the files of the release {release.digest[:12]} were deleted meanwhile: run this again")
            _replace_digest(version, present if former is None else former, release.digest)
        return not logged


def _replace_digest(version: RegisteredVersion, former: str | None, digest: str) -> None:
    """Set the tag of the release, unless another process has changed it since it was ``former``."""
    client = connect()
    present = client.get_model_version(version.model, str(version.number)).tags.get(RELEASE_TAG)
    if present not in (former, digest):
        raise OSError(
            f"version {version.number} of {version.model} has the release {str(present)[:12]} since, in place of "
            f"{str(former)[:12]}: another process released it; run this flow or command again"
        )
    check_lock(version.model)
    client.set_model_version_tag(version.model, str(version.number), RELEASE_TAG, digest)


def find_version(model: str, onnx_hash: str) -> RegisteredVersion:
    """Return the latest version of a registered model that has an artifact ``onnx``."""
    with mlflow_errors_as_oserror():
        equal = f"name = '{model}' and tags.`{ONNX_TAG}` = '{onnx_hash}'"
        found = connect().search_model_versions(equal, max_results=1, order_by=["version_number DESC"])
    if not found:
        raise ValueError(f"no version of {model} has this model: run python -m pipelines register first")
    return RegisteredVersion(model, int(found[0].version), str(found[0].run_id))


def read_digest(version: RegisteredVersion) -> str:
    """Return the hash of a version's release."""
    with mlflow_errors_as_oserror():
        digest = connect().get_model_version(version.model, str(version.number)).tags.get(RELEASE_TAG)
    if digest is None:
        version.check()
        raise FileNotFoundError(
            f"version {version.number} of {version.model} has no release: run python -m pipelines release for its run"
        )
    return str(digest)


def download_release(version: RegisteredVersion, digest: str, folder: Path) -> tuple[Path, Path]:
    """Download a release with its model to ``folder`` and verify all hashes; return both folders, the graphs first."""
    with mlflow_errors_as_oserror():
        connect()
        path = mlflow.artifacts.download_artifacts(
            run_id=version.run_id, artifact_path=f"{FOLDER}/{digest}", dst_path=str(folder / "release")
        )
    release = Release.read(Path(path))
    if release.digest != digest:
        raise ValueError(f"{DESCRIPTION} of version {version.number} has another hash than the tag {RELEASE_TAG}")
    found = {name: of_file for name, of_file in hash_files(Path(path)).items() if name != DESCRIPTION}
    different = sorted(name for name in {*found, *release.files} if found.get(name) != release.files.get(name))
    if different:
        raise ValueError(f"{different[0]} of the release of version {version.number} is missing, unknown or damaged")
    graphs = version.download_graphs(folder / "model")
    _check_model(version, release, model_hash(graphs))
    return graphs, Path(path)


def released_items(version: RegisteredVersion) -> frozenset[tuple[str, str]]:
    """Return id and content of the items in a version's release, without the deleted items of the model."""
    path, deleted = f"{FOLDER}/{read_digest(version)}/{COLLECTION}/{ITEMS}", read_deletions(version.model)
    with mlflow_errors_as_oserror(), TemporaryDirectory() as folder:
        file = mlflow.artifacts.download_artifacts(run_id=version.run_id, artifact_path=path, dst_path=folder)
        columns = pq.read_table(file, columns=["item_id", "sha256", "deleted"]).to_pydict().values()
    rows = zip(*columns, strict=True)
    return frozenset((name, content) for name, content, gone in rows if not gone and name not in deleted)


def _read_release(version: RegisteredVersion, digest: str, folder: Path) -> Release:
    folder.mkdir()
    mlflow.artifacts.download_artifacts(
        run_id=version.run_id, artifact_path=f"{FOLDER}/{digest}/{DESCRIPTION}", dst_path=str(folder)
    )
    return Release.read(next(folder.rglob(DESCRIPTION)).parent)


def _check_model(version: RegisteredVersion, release: Release, model: str) -> None:
    if model != release.model:
        raise ValueError(f"the release belongs to another model than version {version.number} of {version.model}")
