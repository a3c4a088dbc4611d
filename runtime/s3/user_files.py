"""User files on S3: local copies of the paths that a section of ``params.yaml`` names."""

from collections.abc import Mapping
from typing import Any

from runtime.s3.storage import Storage
from runtime.s3.uri import cache_path, is_remote
from runtime.spec import Component, replace_values


def download_user_files(values: Mapping[str, Any], component: Component) -> dict[str, Any]:
    """Download the component's user files that are on S3; return ``values`` with the paths of the copies. The component
    lists its ``listed_paths`` itself.
    """
    section = values.get(component.name, {})
    copies: dict[tuple[str | int, ...], str] = {}
    for location, path in component.user_paths(section).items():
        if is_remote(path):
            if location not in [(name,) for name in component.listed_paths]:
                Storage().download(path, cache_path(path))
            copies[location] = str(cache_path(path))
    return {**values, component.name: replace_values(section, copies)}


def source_digests(values: Mapping[str, Any], component: Component) -> dict[str, str]:
    """Return a digest of each of the component's user files that are on S3, by its address."""
    paths = sorted(set(component.user_paths(values.get(component.name, {})).values()))
    return {path: Storage().digest(path) for path in paths if is_remote(path)}
