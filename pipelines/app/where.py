"""``bifocal where``."""

from pathlib import Path

import click

from pipelines.app.run_folder import latest_run, run_option


@click.command()
@click.argument("image", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("phrase")
@run_option
@click.option(
    "--picture", type=click.Path(path_type=Path), help="File of the picture; by default where.png in the run folder."
)
def where_command(image: Path, phrase: str, folder: Path | None, picture: Path | None) -> None:
    """Show where in IMAGE the PHRASE is: write the image with a heatmap, and print the point."""
    import bifocal

    folder = latest_run(folder)
    location = bifocal.load(folder).where(image, phrase)
    target = picture or folder / "where.png"
    location.picture().save(target)
    x, y = location.point
    click.echo(f"{phrase!r} at {x:.0%} from the left, {y:.0%} from the top")
    click.echo(f"-> {target}")
