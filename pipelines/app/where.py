"""``bifocal where``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bifocal.onnx.pointing import ACCURATE, FOLDER, LIKELY, Pointer, PointingHead
from pipelines.app.run_folder import check_picture, latest_run, run_option
from pipelines.app.search import save_picture, tell_unknown

if TYPE_CHECKING:
    from bifocal.search.trained_model import Location


@click.command()
@click.argument("image", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("phrase")
@run_option
@click.option(
    "--weights",
    type=click.Path(path_type=Path, exists=True),
    help="Folder with the weights of a backbone and of a sentence encoder, as for 'bifocal "
    "train', to point without a run.",
)
@click.option("--accurate", is_flag=True, help="Sum three sizes of the image: four times slower.")
@click.option(
    "--picture",
    type=click.Path(path_type=Path),
    callback=check_picture,
    help="File of the picture; by default where.png in the run folder, or here without a run.",
)
def where_command(
    image: Path,
    phrase: str,
    folder: Path | None,
    weights: Path | None,
    accurate: bool,
    picture: Path | None,
) -> None:
    """Show where in IMAGE the PHRASE is: write the image with a heatmap, and print the point.

    The point is a guess. If the phrase is probably not in the image, no point is drawn.
    """
    from bifocal.search.trained_model import locate

    pointer: Pointer
    if weights is not None:
        if folder is not None:
            raise click.UsageError("--run and --weights exclude each other")
        from bifocal.export.class_sentences import small_encoders
        from pipelines.app.encoders import small_at_hand

        pointer = PointingHead(small_encoders(small_at_hand(weights)) / FOLDER)
        target = Path("where.png")
    else:
        import bifocal

        folder = latest_run(folder)
        pointer, target = bifocal.load(folder).pointer, folder / "where.png"
    if accurate:
        if not isinstance(pointer, PointingHead):
            raise click.UsageError(
                "--accurate needs a pointing head, which this model does not have"
            )
        pointer.sizes = ACCURATE
    location = locate(pointer, image, phrase)
    tell_unknown(location.unknown)
    click.echo(describe(phrase, location))
    save_picture(location.picture(), picture, target)


def describe(phrase: str, location: "Location") -> str:
    """Return a guess, a place with the words that the phrase is rather not there, or that it is
    not."""
    if not location.present:
        return f"no {phrase!r} in this image"
    x, y = location.point
    unlikely = location.probability is not None and location.probability < LIKELY
    start = (
        f"perhaps no {phrase!r} in this image; the closest place is"
        if unlikely
        else f"guess: {phrase!r}"
    )
    return f"{start} around {x:.0%} from the left, {y:.0%} from the top"
