"""``bifocal index``."""

import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from bifocal.progress import printable
from pipelines.app.run_folder import (
    ARTIFACTS,
    INDEXED,
    RUNS,
    FolderOrAddress,
    check_owner,
    follow_links_option,
    latest_run,
    run_name,
    write_parameters,
)

RATE = 35.0
"""Images per second of the encoder small on two cores, roughly."""
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
    help="Pretrained encoders, by default those of the last call, or else clip if its files "
    "are cached or a hub answers, or else small. small: EfficientNet-Lite2 and "
    "all-MiniLM-L6-v2, R@1 9.0 / 8.6 and R@10 29.3 / 32.4 % on 1,000 photographs of "
    "Flickr8k with 5,000 captions (chance: 0.1 and 1). clip, siglip2 and multilingual "
    "need no torch. Others are models of open_clip, such as ViT-B-16__openai, "
    "repositories of the Hugging Face hub, and folders.",
)
@click.option(
    "--weights",
    type=click.Path(path_type=Path, exists=True),
    help="Folder with the encoder's files, in place of a download or the extra small. For "
    "small (or BIFOCAL_WEIGHTS): weights of a backbone, and the folder of a sentence "
    "encoder.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Run folder to write; by default runs/NAME-index.",
)
@click.option(
    "--watch",
    "is_watched",
    is_flag=True,
    help="Go on until Ctrl-C, and index each change of DIRECTORY.",
)
@click.option(
    "--yes",
    "is_agreed",
    is_flag=True,
    help="Download the encoder of the default without a question.",
)
@follow_links_option
@click.option(
    "--prune",
    is_flag=True,
    help="Remove many images that are gone together; without it they stay, as a disk may be away.",
)
@click.option(
    "--no-features",
    is_flag=True,
    help="Do not store the features of the backbone, about 6 kB per image. With them, another "
    "--run with the same backbone needs no image.",
)
@click.option(
    "--dry-run", "is_dry", is_flag=True, help="Print what an index would do, and write nothing."
)
def index_command(
    directory: str,
    run: Path | None,
    encoder: str | None,
    weights: Path | None,
    folder: Path | None,
    is_watched: bool,
    is_agreed: bool,
    follow_links: bool,
    prune: bool,
    no_features: bool,
    is_dry: bool,
) -> None:
    """Make DIRECTORY searchable: a folder of images, a table that names images, or an archive.

    Captions are not needed; captions.csv or a .txt beside each image are read if they are there. A
    second call adds, changes and removes what changed in the folder. A killed call goes on with the
    same command. Then 'bifocal search', 'where' and 'serve' use the run folder.
    """
    if run is not None and (encoder or weights):
        raise click.UsageError("--run names trained encoders: leave out --encoder and --weights")
    is_named, folder = folder is not None, folder or RUNS / f"{run_name(directory)}-index"
    options = {"is_named": is_named, "is_agreed": is_agreed, "is_dry": is_dry}
    section = chosen_encoders(folder, directory, run, encoder, weights, **options)
    if follow_links:
        section["follow_links"] = True
    if no_features:
        section["no_features"] = True
    if is_dry:
        plan(Path(directory), folder, section, prune=prune)
        return
    if not is_watched:
        index(Path(directory), folder, section, prune=prune)
        click.echo('Next: bifocal search "a dog in the snow"')
        click.echo("      bifocal serve")
        return
    from pipelines.app.index_folder import changes

    for number, _ in enumerate(changes(Path(directory), folder)):
        try:
            index(Path(directory), folder, section, prune=prune)
        except (OSError, ValueError) as error:
            if number == 0:
                raise
            # A file may be half written, until it changes.
            click.secho(f"not indexed: {printable(error)}", fg="yellow", err=True)
        click.echo(f"{datetime.now():%H:%M:%S}  watching {directory} (stop: Ctrl-C)")


def index(directory: Path, folder: Path, section: dict[str, Any], *, prune: bool = False) -> None:
    """Index a source by the encoders of a section of ``params.yaml``; print numbers of images, and
    broken files."""
    start = time.monotonic()
    from bifocal.onnx.towers import is_towers
    from bifocal.search.collection.embedding import FEATURE_BYTES
    from pipelines.app.encoders import encoder_folder, small_pointing
    from pipelines.app.index_folder import index_folder

    folder.mkdir(
        parents=True, exist_ok=True
    )  # a target that cannot be written fails before an export
    if section["run"] is None:
        named = None if section["weights"] is None else Path(section["weights"])
        encoders, bank = encoder_folder(section["encoder"], named), None
    else:
        artifacts = latest_run(Path(section["run"])) / ARTIFACTS
        encoders, bank = artifacts / "onnx", artifacts / "embedding"
    write_parameters(folder, {INDEXED: section})  # a killed call goes on with these encoders
    pointing = small_pointing() if is_towers(encoders) else None
    indexed = index_folder(
        directory,
        encoders,
        folder,
        bank,
        pointing,
        prune=prune,
        follow_links=bool(section.get("follow_links")),
        feature_bytes=0 if section.get("no_features") else FEATURE_BYTES,
    )
    write_parameters(folder, {INDEXED: section})  # the latest run is the default of other commands
    rate = f"; {indexed.rate:.1f} images/s" if indexed.rate else ""
    click.echo(
        f"{indexed.images:,} images can be searched: {indexed.new:,} new, {indexed.changed:,} "
        f"changed, {indexed.removed:,} removed{rate}, {time.monotonic() - start:.0f} s."
    )
    if indexed.broken:
        print_left_out(indexed.broken)
        click.echo(f"  -> {folder / ARTIFACTS / 'collection' / 'rejected.parquet'}", err=True)


def plan(directory: Path, folder: Path, section: dict[str, Any], *, prune: bool) -> None:
    """Print what an index of a source would read, embed and download; files are listed, and not
    decoded."""
    from pipelines.app.encoders import is_at_hand
    from pipelines.app.index_folder import read_source

    collection = folder / ARTIFACTS / "collection"
    with TemporaryDirectory() as unpacked:
        source, former = read_source(
            directory, collection, Path(unpacked), prune, bool(section.get("follow_links"))
        )
    known = set[str]() if former is None else set(former.ids)
    new = sum(entry.item_id not in known for entry in source.entries)
    captions = sum(map(len, source.captions.values()))
    encoder = section["encoder"] or f"trained, of {section['run']}"
    click.echo(
        f"{len(source.entries):,} images, {new:,} of them new; {captions:,} captions; encoder "
        f"{encoder}"
    )
    is_local = section["run"] or section["weights"] or is_at_hand(encoder)
    click.echo(f"download: {'none' if is_local else 'the encoder, unless it is in the cache'}")
    click.echo(
        f"about {new / RATE / 60:.0f} minutes for new images with the encoder small on two cores"
    )
    if source.rejected:
        print_left_out(source.rejected)


def print_left_out(entries: Sequence[tuple[str, str]]) -> None:
    """Print the number of entries that are left out, and the first of them with their reasons."""
    click.secho(f"{len(entries):,} left out:", fg="yellow", err=True)
    for entry, reason in entries[:SHOWN]:
        click.echo(f"  {printable(entry)}: {printable(reason)}", err=True)


def chosen_encoders(
    folder: Path,
    directory: str,
    run: Path | None,
    encoder: str | None,
    weights: Path | None,
    *,
    is_named: bool,
    is_agreed: bool,
    is_dry: bool,
) -> dict[str, Any]:
    """Return the section of ``params.yaml``: the options, or else the encoders of the folder's last
    call or the best.

    Raises:
        click.UsageError: nobody agreed to a download of the best encoders.
    """
    previous = check_owner(folder, {INDEXED: {"directory": directory}}, is_named=is_named).get(
        INDEXED
    )
    if run is None and encoder is None and weights is None and previous:
        return {**previous, "directory": directory}
    absolute = {
        name: None if path is None else str(path.resolve())
        for name, path in (("run", run), ("weights", weights))
    }
    from pipelines.app.encoders import SMALL, best_encoder, encoder_name

    if run is None and encoder is None and weights is None:
        if not is_dry:
            folder.mkdir(
                parents=True, exist_ok=True
            )  # a target that cannot be written fails before a download
        encoder, reason, size = best_encoder()
        click.echo(f"encoder {encoder}: {reason}", err=True)
        if size and not (is_agreed or is_dry):
            if not sys.stdin.isatty():
                raise click.UsageError(
                    "add --yes to download it, or name another encoder, such as --encoder small"
                )
            click.confirm("Download it?", default=True, abort=True, err=True)
    return {
        "directory": directory,
        "encoder": encoder_name(encoder or SMALL) if run is None else None,
        **absolute,
    }
