"""Where a model comes from: the manifests of the artifacts that led to it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.artifacts import artifact_hash, read_manifest
from runtime.mlflow import git_commit


def lineage(artifacts: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Of each artifact: the stage, its parameters, its figures and hashes, as texts.

    Args:
        artifacts: complete ones, by their names.
    """
    found: dict[str, dict[str, str]] = {"this checkout": {"git commit": git_commit()}}
    for name, path in artifacts.items():
        manifest = read_manifest(path)
        rows = {"artifact": artifact_hash(path), "code": str(manifest["code"])}
        rows |= {f"input {source}": str(digest) for source, digest in manifest["inputs"].items()}
        rows |= flat(manifest["parameters"])
        rows |= {f"metric {key}": f"{value:g}" for key, value in manifest["metrics"].items()}
        found[f"{name}, by {manifest['component']}"] = rows
    return found


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested values with dotted names."""
    rows: dict[str, str] = {}
    for key, value in values.items():
        rows |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": str(value)}
    return rows
