"""Registered models: versions, their aliases, and the evaluation results stored with them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model
from mlflow.models.model import MLMODEL_FILE_NAME

from runtime.artifacts import MANIFEST, artifact_hash, read_manifest
from runtime.mlflow.connection import connect, mlflow_errors_as_oserror

EVALUATION_DIR = "evidence"
"""Folder of a version's run that holds its evaluation; a name in users' MLflow stores, so it never changes."""
ONNX_TAG = "hash.onnx"
"""Tag of a version with the hash of its ONNX artifact; registration is idempotent by it."""
EVALUATION_TAG = "hash.metrics"
RELEASE_TAG = "release"
"""Tag of a version with the hash of its release, see ``runtime.mlflow.releases``."""
DELETED_TAG = "model.deleted"
"""Tag of a version with the time at which ``python -m pipelines clean`` deleted its model."""


def reuse_version(model: str, alias: str, onnx_hash: str, evaluation: Path, evaluation_hash: str) -> int | None:
    """Move ``alias`` to the latest version with the same ONNX artifact and replace its evaluation; None without one, or
    if its model was deleted.
    """
    with mlflow_errors_as_oserror():
        client = connect()
        equal = f"name = '{model}' and tags.`{ONNX_TAG}` = '{onnx_hash}'"
        versions = client.search_model_versions(equal, max_results=1, order_by=["version_number DESC"])
        if not versions or DELETED_TAG in versions[0].tags:
            return None
        (version,) = versions
        if version.tags.get(EVALUATION_TAG) != evaluation_hash:
            client.log_artifacts(str(version.run_id), str(evaluation), EVALUATION_DIR)
            client.set_model_version_tag(model, version.version, EVALUATION_TAG, evaluation_hash)
        client.set_registered_model_alias(model, alias, version.version)
        # A call of 'clean' that deletes this model sets the tag before it reads the aliases.
        deleted = DELETED_TAG in client.get_model_version(model, version.version).tags
        return None if deleted else int(version.version)


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a registered model and the run that logged it."""

    model: str
    number: int
    run_id: str

    def check(self) -> None:
        """Raise ``FileNotFoundError`` if its model was deleted."""
        deleted = version_tags(self).get(DELETED_TAG)
        if deleted is not None:
            raise FileNotFoundError(
                f"the model of version {self.number} of {self.model} was deleted by 'python -m pipelines clean' on "
                f"{deleted[:10]}: choose another version, or train and register it again"
            )

    def download(self, folder: Path) -> tuple[Path, Path]:
        """Download below ``folder``; return the directories of the model and of its evaluation."""
        self.check()
        model = mlflow.artifacts.download_artifacts(
            artifact_uri=f"models:/{self.model}/{self.number}", dst_path=str(folder / "model")
        )
        evaluation = mlflow.artifacts.download_artifacts(
            run_id=self.run_id, artifact_path=EVALUATION_DIR, dst_path=str(folder / "run")
        )
        return Path(model), Path(evaluation)

    def download_graphs(self, folder: Path) -> Path:
        """Download the model to ``folder``; return the directory of its ONNX graphs."""
        with mlflow_errors_as_oserror():
            self.check()
            uri = f"models:/{self.model}/{self.number}"
            model = Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder)))
            return model / str(Model.load(model).flavors["python_function"]["data"])

    def graph_files(self, folder: Path) -> dict[str, str]:
        """Return the SHA-256 of each file of its artifact ``onnx``, from the registered manifest only."""
        with mlflow_errors_as_oserror():
            self.check()
            tag = connect().get_model_version(self.model, str(self.number)).tags.get(ONNX_TAG)
            uri = f"models:/{self.model}/{self.number}"
            description = mlflow.artifacts.download_artifacts(f"{uri}/{MLMODEL_FILE_NAME}", dst_path=str(folder))
            data = Model.load(description).flavors["python_function"]["data"]
            manifest = mlflow.artifacts.download_artifacts(f"{uri}/{data}/{MANIFEST}", dst_path=str(folder))
        if artifact_hash(Path(manifest).parent) != tag:
            raise ValueError(
                f"{MANIFEST} of version {self.number} of {self.model} has another hash than the tag {ONNX_TAG}: "
                "register the model again"
            )
        files: dict[str, str] = read_manifest(Path(manifest).parent)["files"]
        return files

    def download_evaluation(self, name: str, folder: Path) -> Path:
        """Download the file ``name`` of its evaluation to ``folder``; return its path."""
        with mlflow_errors_as_oserror():
            connect()
            path = f"{EVALUATION_DIR}/{name}"
            return Path(
                mlflow.artifacts.download_artifacts(run_id=self.run_id, artifact_path=path, dst_path=str(folder))
            )

    def log_decision(self, tags: Mapping[str, str], name: str, decision: Mapping[str, Any]) -> None:
        """Set ``tags`` on the version and log ``decision`` with its run, as the JSON file ``name``."""
        client = connect()
        client.log_dict(self.run_id, dict(decision), name)
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
        raise ValueError(f"{model} has no version {number}: MLflow's page of the model lists its versions")
    return RegisteredVersion(model, number, str(found[0].run_id))


def version_tags(version: RegisteredVersion) -> dict[str, str]:
    """Return the tags of a version."""
    return dict(connect().get_model_version(version.model, str(version.number)).tags)


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
