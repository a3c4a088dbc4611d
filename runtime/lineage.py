"""Lineage of a model: the manifests of the artifacts behind it."""

from collections.abc import Mapping
from pathlib import Path

from runtime.artifacts import artifact_hash, read_manifest
from runtime.marks import flatten
from runtime.mlflow import git_commit


def lineage(artifacts: Mapping[str, Path]) -> dict[str, dict[str, str]]:
    """Return, for each artifact, its stage, parameters, metrics and hashes as texts; first the git commit."""
    entries: dict[str, dict[str, str]] = {"this checkout": {"git commit": git_commit()}}
    for name, path in artifacts.items():
        manifest = read_manifest(path)
        rows = {"artifact": artifact_hash(path), "code": str(manifest["code"])}
        rows |= {f"input {source}": str(digest) for source, digest in manifest["inputs"].items()}
        rows |= {key: str(value) for key, value in flatten(manifest["parameters"]).items()}
        rows |= {f"metric {key}": f"{value:g}" for key, value in manifest["metrics"].items()}
        entries[f"{name}, by {manifest['component']}"] = rows
    return entries
