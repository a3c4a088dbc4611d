"""The command ``bifocal``, also as ``python -m bifocal``."""

import os
import sys
from importlib import import_module, metadata
from pathlib import Path

PACKAGES = Path(__file__).with_name("_packages")
"""In a wheel, the folder of ``components``, ``pipelines`` and ``runtime``: in site-packages, they
would collide with packages of users. A checkout has them beside ``bifocal``."""


def main() -> None:
    """Run the command ``bifocal``."""
    if conflict := conflicting_distribution():
        sys.exit(f"error: {conflict}")
    add_packages()
    # By name: the library imports no higher layer, and a notebook does without them.
    import_module("pipelines.app").main()


def add_packages() -> None:
    """Put the wheel's other packages first on the path of this process and its children."""
    if PACKAGES.is_dir() and str(PACKAGES) not in sys.path:
        sys.path.insert(0, str(PACKAGES))
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(PACKAGES), os.environ.get("PYTHONPATH")))
        )


def conflicting_distribution() -> str | None:
    """Return a sentence about another installed distribution with a package ``bifocal``; None
    without one."""
    try:
        version = metadata.version("bifocal")
    except metadata.PackageNotFoundError:
        return None
    return (
        f"the distribution 'bifocal' {version} is installed. It is not 'bifocal-vse', and both "
        "write the package 'bifocal': run 'pip uninstall bifocal bifocal-vse', then install this "
        "package again from its clone or wheel"
    )


if __name__ == "__main__":
    main()
