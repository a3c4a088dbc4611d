"""``bifocal cache``."""

from pathlib import Path

import click

from bifocal.durable import clear
from bifocal.durable.cached import cache_folder
from bifocal.durable.inside import is_own_tree

PURPOSES = {
    "encoders": "the encoder small, and exported encoders",
    "graphs": "exported networks of trainings",
    "hub": "marks of checked downloads, which the hub's library keeps elsewhere",
    "names": "vectors of class names, which calibrate a collection without captions",
    "s3": "copies of files on S3",
}
"""What each folder holds."""


@click.command()
@click.option("--clear", "is_cleared", is_flag=True, help="Delete the files, after a question.")
@click.option("--yes", "is_agreed", is_flag=True, help="Delete without a question.")
def cache_command(is_cleared: bool, is_agreed: bool) -> None:
    """List what Bifocal keeps in the cache of this user, with sizes.

    Everything there is made again when it is needed. Runs and indexes do not need it.
    """
    home = cache_folder("names").parent
    folders = [path for path in sorted(home.iterdir()) if path.is_dir()] if home.is_dir() else []
    for folder in folders:
        purpose = PURPOSES.get(folder.name, "of another version")
        click.echo(f"{megabytes(folder):8,.1f} MB  {folder}: {purpose}")
    click.echo(f"{sum(map(megabytes, folders)):8,.1f} MB  in all")
    if not (is_cleared and folders):
        return
    if not is_own_tree(home):
        raise ValueError(f"{home} has links or files of others: delete it by hand")
    if not is_agreed:
        click.confirm("Delete them?", abort=True)
    clear(home)


def megabytes(folder: Path) -> float:
    """Return the size of the files below a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6
