"""``bifocal export``."""

import shutil
from pathlib import Path

import click

from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option


@click.command()
@click.argument("destination", type=click.Path(path_type=Path))
@run_option
def export_command(destination: Path, folder: Path | None) -> None:
    """Copy the ONNX graphs of a run, with what turns sentences and images into their inputs, to DESTINATION."""
    folder = latest_run(folder)
    if destination.exists():
        raise FileExistsError(f"{destination} exists already: name a new folder")
    partial = destination.with_name(destination.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(folder / ARTIFACTS / "onnx", partial)
    partial.rename(destination)
    for file in sorted(destination.rglob("*")):
        if file.is_file():
            click.echo(f"{file.stat().st_size / 2**20:9.2f} MiB  {file.relative_to(destination)}")
    click.echo(f"-> {destination}")
