"""``bifocal delete``."""

import json
from pathlib import Path

import click

from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option


@click.command()
@click.argument("item_ids", metavar="ID...", nargs=-1)
@run_option
@click.option(
    "--list",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with one id per line as a JSON string, such as the file of 'bifocal serve --deletions'.",
)
def delete_command(item_ids: tuple[str, ...], folder: Path | None, file: Path | None) -> None:
    """Delete images from the collection and the index of a run: vectors, regions, captions and metadata.

    Their ids stay as tombstones. The image files stay too, unless they are in the collection: delete them where they
    are, or the next 'embed_collection' embeds them again.
    """
    from bifocal.search.deletion import delete_from_collection, delete_from_index
    from runtime import artifacts

    wanted = list(item_ids)
    if file is not None:
        wanted += [str(json.loads(line)) for line in file.read_text("utf-8").splitlines() if line.strip()]
    if not wanted:
        raise click.UsageError("name at least one ID, or a file with --list")
    root = latest_run(folder) / ARTIFACTS
    counts = delete_from_collection(root / "collection", wanted)
    removed = delete_from_index(root / "index", wanted)
    for artifact in (root / "collection", root / "index"):
        if (artifact / artifacts.MANIFEST).is_file():
            manifest = artifacts.read_manifest(artifact)
            (artifact / artifacts.MANIFEST).unlink()
            files = artifacts.hash_files(artifact)
            artifacts.write_json(artifact / artifacts.MANIFEST, manifest | {"files": files})
    click.echo(f"deleted {len(set(wanted))}: {counts.items} items and {counts.deleted} tombstones are left")
    click.echo(
        f"{removed:.0%} of the index are removed items; 'python -m components build_index' builds it without them"
    )
