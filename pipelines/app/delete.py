"""``bifocal delete``."""

from pathlib import Path

import click

from pipelines.app.run_folder import ARTIFACTS, latest_run, run_option


@click.command()
@click.argument("item_ids", metavar="ID...", nargs=-1)
@run_option
@click.option(
    "--model",
    help="Delete from all versions and releases of this registered model, not from a run.",
)
@click.option(
    "--list",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with one id per line as a JSON string, such as the file of 'bifocal serve "
    "--deletions'.",
)
def delete_command(
    item_ids: tuple[str, ...], folder: Path | None, model: str | None, file: Path | None
) -> None:
    """Delete images from the collection and the index of a run: vectors, regions, captions and
    metadata.

    Their ids stay as tombstones. The image files stay too, unless they are in the collection:
    delete them where they are, or the next 'embed_collection' embeds them again. A deletion with
    --model is final: services leave the items out at their next look, and no later release of any
    version has them.
    """
    from bifocal.durable import change
    from bifocal.search.deletion import delete_from_collection, delete_from_index, read_ids
    from runtime.artifacts import change_manifest

    wanted = list(item_ids)
    if file is not None:
        ids, incomplete = read_ids(file.read_text("utf-8"))
        wanted += ids
        for line in incomplete:
            click.secho(
                f"{file}: {line!r} is not an id as a JSON string: left out", fg="yellow", err=True
            )
    if not wanted:
        raise click.UsageError("name at least one ID, or a file with --list")
    if model is not None:
        from runtime.mlflow.releases import RegistryDeletions

        deletions = RegistryDeletions(model)
        deletions.refresh()
        deletions.add_all(wanted)
        click.echo(f"{len(set(deletions))} items of {model} are deleted, whatever version serves")
        return
    root = latest_run(folder) / ARTIFACTS
    with change(root) as changed:
        counts = delete_from_collection(changed, root / "collection", wanted)
        removed = delete_from_index(changed, root / "index", wanted)
        for artifact in (root / "collection", root / "index"):
            change_manifest(changed, artifact)
    click.echo(
        f"deleted {len(set(wanted))} from {root.parent}: {counts.items} items and {counts.deleted} tombstones are left"
    )
    click.echo(
        f"{removed:.0%} of the index are removed items; 'python -m components build_index' "
        "builds it without them"
    )
