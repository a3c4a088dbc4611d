"""Build of the wheel: it contains the parameters and the recipes."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DATA = "bifocal/_packages/pipelines/app/data"


class DataFiles(BuildHookInterface[Any]):
    """Adds files that the commands read; a checkout has them in other folders."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files."""
        if version != "editable":
            build_data["force_include"] |= {
                name: f"{DATA}/{name}" for name in ("params.yaml", "recipes")
            }
