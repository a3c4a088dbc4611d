"""``bifocal inspect``."""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bifocal.progress import plain
from pipelines.app.run_folder import FolderOrAddress, follow_links_option, shipped_file

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bifocal.datasets import Dataset
    from bifocal.datasets.corpora import ImageFolder
    from bifocal.datasets.inspection import Inspection

LONG = 2000
"""Characters of a text of several names."""
COLORS = {"error": "bold red", "warning": "yellow", "note": "dim"}


class Inspected(NamedTuple):
    """Images with captions below ``root``, a folder of this machine, and what is wrong with
    them."""

    root: Path
    images: "ImageFolder"
    dataset: "Dataset"
    inspection: "Inspection"


@click.command()
@click.argument("directory", type=FolderOrAddress(exists=True, resolve_path=True))
@click.option(
    "--page",
    type=click.Path(path_type=Path),
    default=Path("inspection.html"),
    show_default=True,
    help="File of the page with thumbnails.",
)
@click.option(
    "--compare",
    type=click.IntRange(0),
    default=5000,
    show_default=True,
    help="Images to compare for near-duplicates.",
)
@click.option("--captions", help="File name of the caption table, if there are several.")
@click.option(
    "--uncaptioned", is_flag=True, help="Images without captions are meant to be searched."
)
@follow_links_option
def inspect_command(
    directory: str,
    page: Path,
    compare: int,
    captions: str | None,
    uncaptioned: bool,
    follow_links: bool,
) -> None:
    """Check DIRECTORY, a folder of images with captions, and print what is in it and what is wrong.

    DIRECTORY may be an address s3://bucket/folder: its files are copied to the cache of this
    machine. The exit code is 1 if there are errors: entries that cannot be used, near-duplicates in
    two splits, or fewer images with captions than a training needs.
    """
    from rich.console import Console

    from bifocal.durable import write_text
    from bifocal.report.inspection import inspection_page
    from bifocal.report.sections import render

    options = {"uncaptioned": uncaptioned, "follow_links": follow_links}
    with inspected(directory, compare, captions=captions, **options) as seen:
        write_text(page, render(inspection_page(seen.root.name, seen.dataset, seen.inspection)))
    Console().print(findings_tables(seen.inspection))
    click.echo(f"-> {page}")
    if not uncaptioned:
        seen.images.count_captioned()
    if seen.inspection.errors:
        sys.exit(1)


@contextmanager
def inspected(directory: str, compare: int = 5000, **options: Any) -> Iterator[Inspected]:
    """Yield a folder or an address on S3 as the training would read it, with ``options`` of
    ``ImageFolder``.

    The dataset of an archive exists as long as the context.
    """
    import pandas as pd

    from bifocal.datasets import read_dataset, write_dataset
    from bifocal.datasets.corpora import ImageFolder
    from bifocal.datasets.inspection import inspect_dataset
    from bifocal.datasets.languages import caption_languages
    from bifocal.datasets.remote_files import is_address
    from bifocal.onnx.image_limits import max_pixels
    from runtime.parameters import load

    root = Path(directory)
    if is_address(directory):
        from runtime.s3.storage import Storage  # a local folder needs no client of S3
        from runtime.s3.uri import cache_path

        root = cache_path(directory)
        Storage().download(directory, root)
    with tempfile.TemporaryDirectory() as folder:
        out, seed = (
            Path(folder),
            load(shipped_file("params.yaml"))["seed"],
        )  # which draws the splits of a training
        images = ImageFolder(root, seed=seed, **options)
        corpus = images.read(out / "images")
        write_dataset(
            out,
            "ImageFolder",
            corpus,
            copy_images=False,
            max_pixels=max_pixels(),
            max_rejected_fraction=1.0,
        )
        dataset, rejected = read_dataset(out), pd.read_parquet(out / "rejected.parquet")
        by_image = dataset.captions.groupby("image_id")["text"].agg(list).tolist()
        languages = caption_languages(by_image) if find_spec("langdetect") else {}
        yield Inspected(
            root, images, dataset, inspect_dataset(dataset, rejected, languages, compare)
        )


def findings_tables(inspection: "Inspection") -> "RenderableType":
    """Return the tables of contents and of findings."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    contents = Table(show_header=False, box=None)
    for name, value in inspection.counts.items():
        contents.add_row(plain(name), plain(value, LONG))
    if inspection.languages:
        shares = (f"{language} {share:.0%}" for language, share in inspection.languages.items())
        contents.add_row("languages", ", ".join(shares))
    if not inspection.findings:
        return Group(contents, "Nothing is wrong.")
    findings = Table("", "finding", "entries", "what to do")
    for finding in inspection.findings:
        color = COLORS[finding.severity]
        example: list[str | Text] = ["\n", plain(finding.examples[0])] if finding.examples else []
        findings.add_row(
            f"[{color}]{finding.severity}[/]",
            Text.assemble(plain(finding.title), *example),
            f"{finding.count:,}",
            plain(finding.advice, LONG),
        )
    return Group(contents, findings)
