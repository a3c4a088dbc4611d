"""``bifocal search``."""

from pathlib import Path

import click

from pipelines.app.run_folder import latest_run, run_option


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
    """Show the images of a run that fit QUERY best: a sentence, or the path of an image."""
    import bifocal
    from bifocal.datasets import open_image
    from bifocal.report.overlay import contact_sheet

    folder = latest_run(folder)
    model = bifocal.load(folder)
    hits = model.search(Path(query) if Path(query).is_file() else query, k=count)
    shown = []
    for number, hit in enumerate(hits, start=1):
        caption = f'  "{hit.captions[0]}"' if hit.captions else ""
        click.echo(f"{number:3}.  {hit.score:.3f}  {hit.path or hit.image_id}{caption}")
        if hit.path is not None:
            shown.append((open_image(hit.path, side=260), f"{number}.  {hit.score:.3f}  {Path(hit.image_id).name}"))
    if shown:
        target = picture or folder / "search.png"
        contact_sheet(query, shown).save(target)
        click.echo(f"-> {target}")
