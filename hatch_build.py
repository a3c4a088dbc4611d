"""Build of the wheel: it contains the parameters, the recipes, and ONNX Runtime for browsers, which
npm fetches."""

import runpy
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SITE = "bifocal/serving/site"
DATA = "bifocal/_packages/pipelines/app/data"


class DataFiles(BuildHookInterface[Any]):
    """Adds files that the commands read; a checkout has them in other folders.

    Without npm or a network, the wheel lacks the files that ``npm.json`` pins, and 'bifocal
    export-site' fetches them.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files; fetch npm's files unless the cache has them."""
        if version == "editable":
            return
        build_data["force_include"] |= {
            name: f"{DATA}/{name}" for name in ("params.yaml", "recipes")
        }
        sys.path.insert(0, self.root)
        try:
            folder = runpy.run_path(f"{self.root}/{SITE}/npm.py")["vendored_files"]()
        except FileNotFoundError as error:
            self.app.display_warning(f"the wheel will not contain them: {error}")
            return
        build_data["force_include"][str(folder)] = f"{SITE}/vendor"
