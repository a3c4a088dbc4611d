"""``bifocal migrate``."""

import sys
from importlib.util import find_spec
from pathlib import Path

import click
import yaml

from components.catalog import configurable_components
from pipelines.app.run_folder import shipped_file
from pipelines.migration.migrate import Migration, migrate
from runtime import parameters


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--check", is_flag=True, help="Write nothing; the exit code is 1 if a file needs changes.")
def migrate_command(files: tuple[Path, ...], check: bool) -> None:
    """Rewrite FILES, each a params.yaml or a recipe of version 0.1 or later, for this version.

    The former file is kept as FILE.bak. Comments are kept. Keys that this version does not know stay in the file, and
    are listed with what to do; the exit code is then 1.
    """
    results = [_migrate(file) for file in files]
    failed = False
    for file, result in zip(files, results, strict=True):
        problems = _problems(result)
        failed |= bool(problems) or (check and bool(result.done))
        click.secho(f"{file}: {_summary(result)}", bold=True)
        for line in result.done:
            click.echo(f"  {line}")
        for line in result.notes:
            click.secho(f"  check: {line}", fg="yellow")
        for line in problems:
            click.secho(f"  to do: {line}", fg="red")
        if result.done and not check:
            backup = _write(file, result.text)
            click.echo(f"  -> {file}; the former file is {backup}")
    if failed:
        sys.exit(1)


def _migrate(file: Path) -> Migration:
    try:
        return migrate(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _summary(result: Migration) -> str:
    kind = "parameters" if result.complete else "recipe"
    return f"{kind}, {len(result.done)} changes" if result.done else f"{kind} of this version, no changes"


def _problems(result: Migration) -> list[str]:
    """Return what this version does not accept; a recipe is checked on top of the params.yaml of this version."""
    values = yaml.safe_load(result.text)
    try:
        if not result.complete:
            values = parameters.merge(parameters.load(shipped_file("params.yaml")), values)
        parameters.validate(values, configurable_components().values(), parts=find_spec("torch") is not None)
    except parameters.ParameterError as error:
        return [line.strip() for line in str(error).splitlines()[1:]] or [str(error)]
    return []


def _write(file: Path, text: str) -> Path:
    """Write a file after its former text was saved beside it.

    Raises:
        FileExistsError: there is such a copy already, of an earlier migration.
    """
    backup = file.with_name(file.name + ".bak")
    if backup.exists():
        raise FileExistsError(f"{backup} exists: move it away, it is the former text of an earlier migration")
    file.rename(backup)
    file.write_text(text, encoding="utf-8")
    return backup
