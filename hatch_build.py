"""Build of the wheel: it contains ONNX Runtime for browsers, which npm fetches."""

import runpy
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SITE = "bifocal/serving/site"


class NPMFiles(BuildHookInterface[Any]):
    """Adds the files that ``npm.json`` pins. Without npm or a network, 'bifocal export-site' fetches them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch the files, unless the cache has them."""
        if version == "editable":
            return
        try:
            folder = runpy.run_path(f"{self.root}/{SITE}/npm.py")["vendored_files"]()
        except FileNotFoundError as error:
            self.app.display_warning(f"the wheel will not contain them: {error}")
            return
        build_data["force_include"][str(folder)] = f"{SITE}/vendor"
