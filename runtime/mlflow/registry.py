"""Registered models: versions, their aliases, and the evaluation results stored with them.

A version keeps its evaluation, decisions and releases in its run, which users may delete: 'mlflow
gc' removes them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.models.model import MLMODEL_FILE_NAME

from bifocal.progress import log_line
from runtime.artifacts import MANIFEST, artifact_hash, hash_files, read_manifest
from runtime.mlflow.connection import (
    connect,
    download,
    find_run,
    if_exists,
    list_folder,
    mlflow_errors_as_oserror,
)

EVALUATION_DIR = "evidence"
"""Folder of a version's run that holds its evaluation; a name in users' MLflow stores, so it never
changes."""
ONNX_TAG = "hash.onnx"
"""Tag of a version with the hash of its ONNX artifact; registration is idempotent by it."""
EVALUATION_TAG = "hash.metrics"
COMMIT_TAG = "git_commit"
RELEASE_TAG = "release"
"""Tag of a version with the hash of its release, see ``runtime.mlflow.releases``."""
DELETED_TAG = "model.deleted"
"""Tag of a version with the time at which ``python -m pipelines clean`` deleted its model."""


def check_downloaded(found: Mapping[str, str], expected: Mapping[str, str], owner: str) -> None:
    """Raise ``ValueError`` unless the files of ``owner``, by SHA-256, are those expected."""
    different = [name for name in {*found, *expected} if found.get(name) != expected.get(name)]
    if different:
        raise ValueError(f"{min(different)} of {owner} is missing, unknown or damaged")


def reuse_version(
    model: str, alias: str, onnx_hash: str, evaluation: Path, evaluation_hash: str
) -> int | None:
    """Move ``alias`` to the latest version with the same ONNX artifact and replace its evaluation;
    None without one, or if its model or its run was deleted.
    """
    with mlflow_errors_as_oserror():
        client = connect()
        version = latest_with(client, model, onnx_hash)
        found = (
            RegisteredVersion(model, int(version.version), str(version.run_id)) if version else None
        )
        if version is None or found is None or not found.is_complete():
            return None
        if version.tags.get(EVALUATION_TAG) != evaluation_hash or not found.has_file(
            EVALUATION_DIR
        ):
            client.log_artifacts(str(version.run_id), str(evaluation), EVALUATION_DIR)
            client.set_model_version_tag(model, version.version, EVALUATION_TAG, evaluation_hash)
        client.set_registered_model_alias(model, alias, version.version)
        # A call of 'clean' that deletes this model sets the tag before it reads the aliases.
        deleted = DELETED_TAG in client.get_model_version(model, version.version).tags
        return None if deleted else int(version.version)


def latest_with(client: mlflow.MlflowClient, model: str, onnx_hash: str) -> ModelVersion | None:
    """Return the latest version of a registered model that has an artifact ``onnx``."""
    equal = f"name = '{model}' and tags.`{ONNX_TAG}` = '{onnx_hash}'"
    return next(
        iter(client.search_model_versions(equal, max_results=1, order_by=["version_number DESC"])),
        None,
    )


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a registered model and the run that logged it."""

    model: str
    number: int
    run_id: str

    def check(self) -> None:
        """Raise ``FileNotFoundError`` if its model was deleted."""
        deleted = version_tags(self).get(DELETED_TAG)
        with mlflow_errors_as_oserror():
            files = if_exists(lambda: mlflow.artifacts.list_artifacts(self.uri))
        if deleted is None and files:
            return
        how = (
            f"was deleted by 'python -m pipelines clean' on {deleted[:10]}"
            if deleted
            else "has no files any more"
        )
        raise FileNotFoundError(
            f"the model of version {self.number} of {self.model} {how}: choose another "
            "version, or train and register it again"
        )

    def is_complete(self) -> bool:
        """Whether neither its model nor its run was deleted."""
        try:
            self.check()
        except FileNotFoundError:
            return False
        return find_run(connect(), self.run_id) is not None

    @property
    def uri(self) -> str:
        """MLflow's address of the model."""
        return f"models:/{self.model}/{self.number}"

    def download_graphs(self, folder: Path) -> Path:
        """Download the model to ``folder``; return the directory of its ONNX graphs; they have the
        registered hash."""
        self.check()
        model = download(folder, artifact_uri=self.uri)
        graphs = model / self._data(model)
        if ONNX_TAG not in recorded_tags(self):
            return graphs  # registered by another program
        files, found = self._read_files(graphs), hash_files(graphs, without=(MANIFEST,))
        check_downloaded(found, files, f"version {self.number} of {self.model}")
        return graphs

    def graph_files(self, folder: Path) -> dict[str, str]:
        """Return the SHA-256 of each file of its artifact ``onnx``, from the registered manifest
        only."""
        self.check()
        data = self._data(download(folder, artifact_uri=f"{self.uri}/{MLMODEL_FILE_NAME}"))
        return self._read_files(
            download(folder, artifact_uri=f"{self.uri}/{data}/{MANIFEST}").parent
        )

    def _data(self, model: Path) -> str:
        """Return the folder that services load, by the description of the model at ``model``."""
        return str(Model.load(model).flavors["python_function"]["data"])

    def _read_files(self, graphs: Path) -> dict[str, str]:
        if artifact_hash(graphs) != recorded_tags(self).get(ONNX_TAG):
            raise ValueError(
                f"{MANIFEST} of version {self.number} of {self.model} has another hash than "
                f"{ONNX_TAG} of its run: register the model again"
            )
        files: dict[str, str] = read_manifest(graphs)["files"]
        return files

    def download_evaluation(self, name: str, folder: Path) -> Path:
        """Download the file ``name`` of its evaluation, or all with "", to ``folder``; return its
        path."""
        return self.download_file(f"{EVALUATION_DIR}/{name}".rstrip("/"), folder)

    def download_file(self, path: str, folder: Path) -> Path:
        """Download a file or folder of its run to ``folder``; ``FileNotFoundError`` if it was
        deleted."""
        if not self.has_file(path):
            raise self.lost(path)
        return download(folder, run_id=self.run_id, artifact_path=path)

    def lost(self, path: str) -> FileNotFoundError:
        """Return the error for a missing file of its run."""
        return FileNotFoundError(
            f"version {self.number} of {self.model} has no {path} any more: its run "
            f"{self.run_id} was deleted, or lost files; register the model again, which makes "
            "a new version"
        )

    def has_file(self, path: str) -> bool:
        """Whether the run of the version is there and has the file or folder ``path``."""
        with mlflow_errors_as_oserror():
            return path in list_folder(connect(), self.run_id, path.rpartition("/")[0])

    def log_decision(self, tags: Mapping[str, str], name: str, decision: Mapping[str, Any]) -> None:
        """Set ``tags`` on the version and log ``decision`` with its run, if left, as the JSON file
        ``name``."""
        client = connect()
        if find_run(client, self.run_id):
            client.log_dict(self.run_id, dict(decision), name)
        else:
            log_line(
                f"{name} is not logged: the run of version {self.number} of {self.model} was "
                "deleted"
            )
        for key, value in tags.items():
            client.set_model_version_tag(self.model, str(self.number), key, value)


def get_version(model: str, alias: str) -> RegisteredVersion | None:
    """Return the version with ``alias``; None if the model or the alias does not exist."""
    try:
        version = connect().get_model_version_by_alias(model, alias)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return None
        raise
    return RegisteredVersion(model, int(version.version), str(version.run_id))


def get_version_number(model: str, number: int) -> RegisteredVersion:
    """Return a version by its number."""
    found = [entry for entry in registered_versions(model) if int(entry.version) == number]
    if not found:
        raise ValueError(
            f"{model} has no version {number}: MLflow's page of the model lists its versions"
        )
    return RegisteredVersion(model, number, str(found[0].run_id))


def version_tags(version: RegisteredVersion) -> dict[str, str]:
    """Return the tags of a version."""
    with mlflow_errors_as_oserror():
        return dict(connect().get_model_version(version.model, str(version.number)).tags)


def recorded_tags(version: RegisteredVersion) -> dict[str, str]:
    """Return the tags of a version, but commit and hashes from its run's parameters, which nobody
    can change."""
    with mlflow_errors_as_oserror():
        run = find_run(connect(), version.run_id)
        params = {
            key: value
            for key, value in (run.data.params if run else {}).items()
            if is_recorded(key)
        }
        return version_tags(version) | {COMMIT_TAG: "unknown"} | params


def is_recorded(tag: str) -> bool:
    """Whether the run of a version has a tag as a parameter; a later evaluation has another
    hash."""
    return tag == COMMIT_TAG or (tag.startswith("hash.") and tag != EVALUATION_TAG)


def registered_versions(model: str) -> list[ModelVersion]:
    """Return all versions of ``model`` as MLflow describes them."""
    client, token = connect(), None
    versions: list[ModelVersion] = []
    while True:
        page = client.search_model_versions(f"name = '{model}'", page_token=token)
        versions += page
        token = page.token
        if not token:
            return versions
