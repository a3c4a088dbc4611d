"""``python -m pipelines packages``."""

import json
from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
def packages(file: Path) -> None:
    """Write the versions of Python and of the packages that stages depend on, and the stages' code hashes, to FILE.

    DVC runs this first in every 'dvc repro': a stage is repeated if a package that its code imports was upgraded, or if
    the meaning of its code changed. A reworded docstring or comment repeats nothing. 'dvc status' does not
    update FILE: run 'dvc repro packages' first.
    """
    from pipelines.dvc import versions_and_code

    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(versions_and_code(), indent=2, sort_keys=True) + "\n")
