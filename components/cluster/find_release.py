"""Step find_release: run."""

from typing import Any

from components.cluster.steps import FindReleaseParams
from runtime.mlflow import get_version, version_tags
from runtime.mlflow.registry import RELEASE_TAG
from runtime.mlflow.releases import read_digest


def run(params: FindReleaseParams) -> dict[str, Any]:
    """Return the number of the version and the hash of its release, from which ``fetch_release`` is
    cached; both are empty for an optional release that does not exist."""
    version = get_version(params.model, params.alias)
    if params.optional and (version is None or RELEASE_TAG not in version_tags(version)):
        return {"version": "", "release": ""}
    if version is None:
        raise ValueError(
            f"no version of {params.model} has the alias {params.alias!r}: run the flow train "
            "or retrain first"
        )
    return {"version": str(version.number), "release": read_digest(version)}
