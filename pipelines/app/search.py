"""``bifocal search``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option

if TYPE_CHECKING:
    from bifocal.trained import ImageHit

RELEVANT = 0.5
"""Probability from which a result is called relevant, as in the page of ``bifocal serve``."""


@click.command()
@click.argument("query")
@run_option
@click.option("-k", "count", type=click.IntRange(1, 100), default=5, show_default=True, help="Images to show.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    help="File of the sheet of images; by default search.png in the run folder.",
)
@click.option("--all", "all_", is_flag=True, help="Show images that are probably not relevant too.")
def search_command(query: str, folder: Path | None, count: int, picture: Path | None, all_: bool) -> None:
    """Show the images of a run that fit QUERY best: a sentence, or the path of an image.

    If the index has a calibration that separates good results from others, each result of a sentence has its
    probability of relevance, and improbable ones are left out.
    """
    import bifocal
    from bifocal.datasets import open_image
    from bifocal.report.overlay import contact_sheet

    folder = latest_run(folder)
    if not (folder / ARTIFACTS / "index").is_dir():
        raise FileNotFoundError(
            f"{folder} has no index: its model is of late interaction, or a version before 0.3.0 trained it. In the "
            "latter case, run 'python -m components embed_collection' and 'python -m components build_index' there"
        )
    model = bifocal.load(folder)
    hits = model.search(Path(query) if Path(query).is_file() else query, k=count, relevant=not all_)
    if not hits and model.index.calibration is not None:
        click.echo(
            f"nothing found: no image is relevant with a probability of {model.index.calibration.threshold:.0%} or "
            "more; --all shows the best images"
        )
    shown = []
    for number, hit in enumerate(hits, start=1):
        caption = f'  "{hit.captions[0]}"' if hit.captions else ""
        click.echo(f"{number:3}.  {hit.score:.3f}{_relevance(hit)}  {hit.path or hit.image_id}{caption}")
        if hit.path is not None:
            shown.append((open_image(hit.path, side=260), f"{number}.  {hit.score:.3f}  {Path(hit.image_id).name}"))
    if shown:
        target = picture or folder / "search.png"
        contact_sheet(query, shown).save(target)
        click.echo(f"-> {target}")


def _relevance(hit: "ImageHit") -> str:
    if hit.probability is None:
        return ""
    return f"  {hit.probability:4.0%} {'relevant' if hit.probability >= RELEVANT else 'maybe   '}"
