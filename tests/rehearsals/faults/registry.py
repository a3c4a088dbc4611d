"""Checks of the MLflow store of a checkout after faults."""

import mlflow

from tests.rehearsals.faults.checkout import Checkout


def check_registry(checkout: Checkout, versions: int) -> None:
    """Check that the registry has so many versions, each of them complete, and that the candidate
    is the last one."""
    client = mlflow.MlflowClient(f"sqlite:///{checkout.folder}/mlflow.db")
    found = client.search_model_versions("name = 'bifocal'")
    assert len(found) == versions, [version.version for version in found]
    assert all(version.status == "READY" and "hash.onnx" in version.tags for version in found)
    candidate = client.get_model_version_by_alias("bifocal", "candidate")
    assert int(candidate.version) == max(int(version.version) for version in found)
