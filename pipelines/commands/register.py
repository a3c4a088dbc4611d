"""``python -m pipelines register``."""

from pathlib import Path

import click


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
def register(folder: Path) -> None:
    """Register the model of the run in FOLDER: the default run, or runs/<folder>/<name> of a recipe.

    A model that is registered already keeps its version; only the alias moves. Registration is not a DVC stage: a
    cached stage would not update the registry, and each trial of 'dvc exp run' would become the candidate.
    """
    from components.catalog import final_component
    from runtime import parameters
    from runtime.artifacts import artifact_hash
    from runtime.job import Workspace, stage_job
    from runtime.mlflow import reuse_version
    from runtime.stage import run_stage

    values = parameters.load(folder / "params.yaml")
    component = final_component(values["pipeline"])
    job = stage_job(component, values, Workspace((folder / "artifacts").as_posix()))
    model, alias = values[component.name]["model"], values[component.name]["alias"]
    metrics, onnx = job.inputs.values()
    version = reuse_version(model, alias, artifact_hash(onnx), metrics, artifact_hash(metrics))
    if version is not None:
        click.echo(f"{model} version {version} has this model already; its alias is {alias}")
        return
    result = run_stage(job).metrics
    click.echo(f"registered {model} version {result['version']}; its alias is {alias}")
