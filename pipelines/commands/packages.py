"""``python -m pipelines packages``."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def packages(file: Path) -> None:
    """Write the installed versions of Python and of the packages that stages depend on to FILE, as JSON.

    DVC runs this first in every 'dvc repro': a stage is repeated if a package that its code imports was upgraded.
    """
    from pipelines.dvc import package_versions

    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(package_versions(), indent=2, sort_keys=True) + "\n")
