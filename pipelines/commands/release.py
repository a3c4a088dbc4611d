"""``python -m pipelines release``."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def release(folder: Path) -> None:
    """Add collection, index and hubness bank of the run in FOLDER to the registered version of its model.

    The version and these files are one release: 'python -m pipelines promote', also with --rollback, moves them
    together, and 'bifocal serve --model models:/bifocal@champion' serves them. A version has the release that was added
    last, without the items that a service or 'bifocal delete --model' deleted. Files of earlier releases stay in the
    registry until 'python -m pipelines clean', so adding an earlier run again uploads nothing.
    """
    from components.catalog import final_component
    from runtime import parameters
    from runtime.artifacts import artifact_hash
    from runtime.mlflow.releases.store import find_version, log_release, read_digest

    values = parameters.load(folder / "params.yaml")
    model = values[final_component(values["pipeline"]).name]["model"]
    onnx, collection, index, embedding = (
        folder / "artifacts" / name for name in ("onnx", "collection", "index", "embedding")
    )
    version = find_version(model, artifact_hash(onnx))
    logged = log_release(version, onnx, collection, index, embedding)
    click.echo(
        f"{model} version {version.number} {'now has' if logged else 'has'} the release {read_digest(version)[:12]}"
        f"{'' if logged else ', whose files were logged already'}"
    )
