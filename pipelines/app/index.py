"""``bifocal index``."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from bifocal.progress import printable
from pipelines.app.run_folder import (
    ARTIFACTS,
    INDEXED,
    RUNS,
    FolderOrAddress,
    check_owner,
    latest_run,
    run_name,
    write_parameters,
)

SHOWN = 20
"""Broken files to list; all of them are in rejected.parquet."""


@click.command()
@click.argument("directory", type=FolderOrAddress(exists=True, resolve_path=True))
@click.option(
    "--run",
    type=click.Path(path_type=Path),
    help="Trained run whose encoders to use; its own collection and calibration stay as they are.",
)
@click.option(
    "--encoder",
    help="Pretrained encoders, by default those of the last call, or else small. small: EfficientNet-Lite2 and "
    "all-MiniLM-L6-v2, R@1 9.0 / 8.6 and R@10 29.3 / 32.4 % on 1,000 photographs of Flickr8k with 5,000 captions "
    "(chance: 0.1 and 1). clip, siglip2 and multilingual need no torch. Others are models of open_clip, such as "
    "ViT-B-16__openai, repositories of the Hugging Face hub, and folders.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, exists=True),
    help="Folder with the encoder's files, by default downloaded. For small (also BIFOCAL_WEIGHTS): the weights of a "
    "backbone, and the folder of a sentence encoder.",
)
@click.option("--folder", type=click.Path(path_type=Path), help="Run folder to write; by default runs/NAME-index.")
@click.option("--watch", "is_watched", is_flag=True, help="Go on until Ctrl-C, and index each change of DIRECTORY.")
def index_command(
    directory: str, run: Path | None, encoder: str | None, weights: Path | None, folder: Path | None, is_watched: bool
) -> None:
    """Make DIRECTORY searchable: a folder of images, a table that names images, or an archive.

    Captions are not needed; captions.csv or a .txt beside each image are read if they are there. A second call adds,
    changes and removes what changed in the folder. A killed call goes on with the same command. Then 'bifocal
    search', 'where' and 'serve' use the run folder.
    """
    if run is not None and (encoder or weights):
        raise click.UsageError("--run names trained encoders: leave out --encoder and --weights")
    is_named, folder = folder is not None, folder or RUNS / f"{run_name(directory)}-index"
    section = chosen_encoders(folder, directory, run, encoder, weights, is_named=is_named)
    if not is_watched:
        index(Path(directory), folder, section)
        click.echo('Next: bifocal search "a dog in the snow"')
        click.echo("      bifocal serve")
        return
    from pipelines.app.index_folder import changes

    for number, _ in enumerate(changes(Path(directory), folder)):
        try:
            index(Path(directory), folder, section)
        except (OSError, ValueError) as error:
            if number == 0:
                raise
            # A file may be half written, until it changes.
            click.secho(f"not indexed: {printable(error)}", fg="yellow", err=True)
        click.echo(f"{datetime.now():%H:%M:%S}  watching {directory} (stop: Ctrl-C)")


def index(directory: Path, folder: Path, section: dict[str, Any]) -> None:
    """Index a source by the encoders of a section of ``params.yaml``; print numbers of images, and broken files."""
    start = time.monotonic()
    from pipelines.app.encoders import encoder_folder
    from pipelines.app.index_folder import index_folder

    folder.mkdir(parents=True, exist_ok=True)  # a target that cannot be written fails before a download
    if section["run"] is None:
        named = None if section["weights"] is None else Path(section["weights"])
        encoders, bank = encoder_folder(section["encoder"], named), None
    else:
        artifacts = latest_run(Path(section["run"])) / ARTIFACTS
        encoders, bank = artifacts / "onnx", artifacts / "embedding"
    write_parameters(folder, {INDEXED: section})  # a killed call goes on with these encoders
    indexed = index_folder(directory, encoders, folder, bank)
    write_parameters(folder, {INDEXED: section})  # the latest run is the default of other commands
    rate = f"; {indexed.rate:.1f} images/s" if indexed.rate else ""
    click.echo(
        f"{indexed.images:,} images can be searched: {indexed.new:,} new, {indexed.changed:,} changed, "
        f"{indexed.removed:,} removed{rate}, {time.monotonic() - start:.0f} s."
    )
    if indexed.broken:
        click.secho(f"{len(indexed.broken):,} left out:", fg="yellow", err=True)
        for image, reason in indexed.broken[:SHOWN]:
            click.echo(f"  {printable(image)}: {printable(reason)}", err=True)
        click.echo(f"  -> {folder / ARTIFACTS / 'collection' / 'rejected.parquet'}", err=True)


def chosen_encoders(
    folder: Path, directory: str, run: Path | None, encoder: str | None, weights: Path | None, *, is_named: bool
) -> dict[str, Any]:
    """Return the section of ``params.yaml``: the options, or else the encoders of the folder's last call."""
    previous = check_owner(folder, {INDEXED: {"directory": directory}}, is_named=is_named).get(INDEXED)
    if run is None and encoder is None and weights is None and previous:
        return {**previous, "directory": directory}
    absolute = {
        name: None if path is None else str(path.resolve()) for name, path in (("run", run), ("weights", weights))
    }
    from pipelines.app.encoders import encoder_name

    return {"directory": directory, "encoder": encoder_name(encoder) if run is None else None, **absolute}
