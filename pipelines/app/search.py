"""``bifocal search``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option

if TYPE_CHECKING:
    from bifocal.search.calibration.calibration import Calibration
    from bifocal.search.trained_model import ImageHit


@click.command()
@click.argument("query")
@run_option
@click.option("-k", "count", type=click.IntRange(1, 100), default=5, show_default=True, help="Images to show.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    help="File of the sheet of images; by default search.png in the run folder.",
)
def search_command(query: str, folder: Path | None, count: int, picture: Path | None) -> None:
    """Show the images of a run that fit QUERY best: a sentence, or the path of an image.

    If the index is calibrated, each result of a sentence has its probability of relevance.
    """
    import bifocal
    from bifocal.datasets import open_image
    from bifocal.report.pictures import contact_sheet

    folder = latest_run(folder)
    if not (folder / ARTIFACTS / "index").is_dir():
        raise FileNotFoundError(
            f"{folder} has no index: its model is of late interaction, or a version before 0.3.0 trained it. In the "
            "latter case, run 'python -m components embed_collection' and 'python -m components build_index' there"
        )
    model = bifocal.load(folder)
    hits = model.search(Path(query) if Path(query).is_file() else query, k=count)
    calibration = model.index.calibration
    best = hits[0].probability if hits else None
    if calibration is not None and best is not None and best < calibration.threshold:
        click.echo(
            "it is uncertain whether an image fits: none is relevant with a probability of "
            f"{calibration.threshold:.0%} or more; these are the closest images"
        )
    shown = []
    for number, hit in enumerate(hits, start=1):
        caption = f'  "{hit.captions[0]}"' if hit.captions else ""
        click.echo(f"{number:3}.  {hit.score:.3f}{_relevance(hit, calibration)}  {hit.path or hit.image_id}{caption}")
        if hit.path is not None:
            shown.append((open_image(hit.path, side=260), f"{number}.  {hit.score:.3f}  {Path(hit.image_id).name}"))
    if shown:
        target = picture or folder / "search.png"
        contact_sheet(query, shown).save(target)
        click.echo(f"-> {target}")


def _relevance(hit: "ImageHit", calibration: "Calibration | None") -> str:
    if hit.probability is None or calibration is None:
        return ""
    return f"  {hit.probability:4.0%} {'relevant' if calibration.is_relevant(hit.probability) else 'maybe   '}"
