"""``bifocal search``."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bifocal.datasets.formats.folder import IMAGE_SUFFIXES
from bifocal.durable import check_own, json_text
from bifocal.progress import printable
from pipelines.app.run_folder import ARTIFACTS, check_picture, latest_run, run_option

if TYPE_CHECKING:
    from PIL import Image

    from bifocal.search.query import Results

LONGEST_NAME = 255
"""Bytes of a file name."""


@click.command()
@click.argument("query")
@run_option
@click.option(
    "-k", "count", type=click.IntRange(1, 100), default=5, show_default=True, help="Images to show."
)
@click.option("--plus", multiple=True, help="Sentence that is added to QUERY; may be repeated.")
@click.option(
    "--minus", multiple=True, help="Sentence that is subtracted from QUERY; may be repeated."
)
@click.option(
    "--mode",
    type=click.Choice(["vectors", "hybrid", "regions"]),
    default="vectors",
    show_default=True,
    help="hybrid also finds words of captions and metadata; regions ranks images by their "
    "best region.",
)
@click.option(
    "--where", default="{}", help='Filter of the metadata as JSON, such as {"year": {"min": 2000}}.'
)
@click.option("--group", help="Metadata column: show one result of each of its values.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    callback=check_picture,
    help="File of the sheet of images; by default search.png in the run folder.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the results as JSON, and write a sheet only by --picture.",
)
@click.option(
    "--copy-to",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to copy the images to.",
)
def search_command(
    query: str,
    folder: Path | None,
    count: int,
    picture: Path | None,
    where: str,
    as_json: bool,
    copy_to: Path | None,
    **options: Any,
) -> None:
    """Show the images of a run that fit QUERY best: a sentence, or the path of an image.

    The score of a result sorts the results: the cosine with the query, corrected for hubness if the
    query is a sentence; in the mode hybrid, the sum of the reciprocal ranks. If the index is
    calibrated, a result of a sentence is found, of which 80 % are right by held-out captions, or
    perhaps; --json has the probability.
    """
    import bifocal
    from bifocal.onnx.images import open_image
    from bifocal.report.pictures import contact_sheet

    asked, folder = _sentence_or_image(query), latest_run(folder)
    if not (folder / ARTIFACTS / "index").is_dir():
        raise FileNotFoundError(
            f"{folder} has no index: its training is not complete, its model is of late "
            "interaction, or a version before 0.3.0 trained it; the same 'bifocal train' "
            "completes a training"
        )
    model = bifocal.load(folder)
    hits = model.search(asked, count, where=_condition(where), **options)
    tell_unknown(hits.unknown)
    if as_json:
        found = [
            {
                "image_id": hit.id,
                "score": hit.score,
                "path": hit.path and str(hit.path),
                "captions": hit.captions,
                "probability": hit.probability,
                "relevance": hit.relevance,
                "copies": hit.copies,
            }
            for hit in hits
        ]
        answer = {"query": query, "found": hits.found, "unknown": hits.unknown, "results": found}
        click.echo(json_text(answer, ensure_ascii="utf" not in sys.stdout.encoding.lower()))
    else:
        tell_found(hits)
    shown, unread = [], []
    for number, hit in enumerate(hits, start=1):
        caption = f'  "{hit.captions[0]}"' if hit.captions else ""
        caption += f"  copies: {len(hit.copies)}" if hit.copies else ""
        relevance = "" if hit.relevance in (None, "nothing") else f"  {hit.relevance:7}"
        if not as_json:
            click.echo(
                f"{number:3}.  {hit.score:.4f}{relevance}  "
                f"{printable(hit.path or hit.id)}{printable(caption)}"
            )
        if hit.path is None:
            continue
        try:
            image = open_image(hit.path, side=260)
        except (OSError, ValueError):
            unread.append(hit.path)
            continue
        if copy_to is not None:
            copy_to.mkdir(parents=True, exist_ok=True)
            shutil.copy(hit.path, copy_to / _copy_name(number, hit.path))
        shown.append((image, f"{number}.  {hit.score:.4f}  {Path(hit.id).name}"))
    if unread:
        names = ", ".join(map(printable, unread))
        again = (
            f"run 'bifocal index' or 'train' again, with --folder or --run {folder} if their "
            "folder moved"
        )
        click.echo(f"cannot be read, so not on the sheet: {names}; {again}", err=True)
    if shown and (picture or not as_json):
        sheet = contact_sheet(printable(query), shown)
        save_picture(sheet, picture, folder / "search.png", err=as_json)


def tell_unknown(words: Sequence[str]) -> None:
    """Print the words of a query that the model does not know."""
    if words:
        click.echo(f"words that the model does not know: {', '.join(words)}", err=True)


def tell_found(hits: "Results") -> None:
    """Print that nothing was found, if the results say so."""
    if not hits.found:
        click.echo(
            f"nothing like it in this collection{'; these are the closest images' if hits else ''}"
        )


def save_picture(
    image: "Image.Image", named: Path | None, default: Path, *, err: bool = False
) -> None:
    """Write a picture; if its default place cannot be written, say so: the answer is printed."""
    target = named or default
    try:
        if named is None:  # in a folder of somebody else, a link names a file of this user
            check_own(target)
        image.save(target)
    except (OSError, ValueError) as error:
        if named is not None:
            raise
        reason = getattr(error, "strerror", None) or error
        click.echo(f"no picture: {target}: {reason}; name a file with --picture", err=True)
    else:
        click.echo(f"-> {target}", err=err)


def _copy_name(number: int, path: Path) -> str:
    """Return the name of a copy, at most as long as a file system takes."""
    stem = path.stem.encode()[: LONGEST_NAME - len(f"{number:03}_{path.suffix}".encode())]
    return f"{number:03}_{stem.decode(errors='ignore')}{path.suffix}"


def _sentence_or_image(query: str) -> str | Path:
    """Return a query, as a path if it names a file; a folder is an error, and so is an image that a
    folder does not have."""
    path, has_folder = Path(query), "/" in query
    try:
        if path.is_file():
            return path
        if path.is_dir() and (has_folder or query in (".", "..")):
            raise IsADirectoryError(f"{query} is a folder: name an image in it, or a sentence")
        if has_folder and not path.parent.is_dir():
            return query  # "a cat and/or dog.png"
    except OSError as error:
        if isinstance(error, IsADirectoryError):
            raise
        return query  # longer than a name can be
    if path.suffix.lower() in IMAGE_SUFFIXES:
        if " " not in query or has_folder:
            raise FileNotFoundError(f"{query}: there is no such image file")
        click.echo(
            f"{query}: there is no such image file, so it is searched as a sentence", err=True
        )
    return query


def _condition(where: str) -> dict[str, Any]:
    from bifocal.search.filters import parse_conditions

    try:
        return parse_conditions(where)
    except ValueError as error:
        raise click.UsageError(f"--{error}") from error
