"""Commands on the registry of models: ``register``, ``release``, ``promote`` and ``clean``."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.commands.cluster import resources_option
from pipelines.commands.project import (
    folder_argument,
    load_resources,
    policy_file,
    project_files,
    project_option,
    run_folder,
)

if TYPE_CHECKING:
    from components.cluster.policies import PromotionPolicy
    from runtime.spec import Component

FILE = click.Path(path_type=Path)
artifacts_option = click.option(
    "--artifacts",
    type=FILE,
    help="Artifacts of the candidate's run, by default the folder artifacts, or the run of a "
    "project on this machine.",
)


def candidate_artifacts(given: Path | None) -> tuple[Path, Path, Path]:
    """Return dataset, features and graphs of the candidate, of a folder of artifacts."""
    folder = given or run_folder() / "artifacts"
    return folder / "dataset", folder / "features", folder / "onnx"


def _registration(folder: Path) -> "tuple[dict[str, Any], Component, tuple[str, str]]":
    """Return the values of a run, the stage that registers it, and its valid model and alias."""
    from components.catalog import final_component
    from runtime import parameters

    values = parameters.load(folder / "params.yaml")
    component = final_component(str(values.get("pipeline")))
    section = {name: values.get(name) for name in ("seed", component.name)}
    valid: Any = parameters.validate(section, [component])[component.name]
    return values, component, (valid.model, valid.alias)


@click.command()
@project_option
@folder_argument
def register(folder: Path) -> None:
    """Register the model of the run in FOLDER: the default run, or runs/<folder>/<name> of a
    recipe.

    A model that is registered already keeps its version; only the alias moves. Registration is not
    a DVC stage: a cached stage would not update the registry, and each trial of 'dvc exp run' would
    become the candidate.
    """
    from runtime.artifacts import artifact_hash
    from runtime.job import Workspace, stage_job
    from runtime.mlflow import reuse_version
    from runtime.stage import run_stage

    values, component, (model, alias) = _registration(folder)
    job = stage_job(component, values, Workspace((folder / "artifacts").as_posix()))
    metrics, onnx = job.inputs.values()
    version = reuse_version(model, alias, artifact_hash(onnx), metrics, artifact_hash(metrics))
    if version is not None:
        click.echo(f"{model} version {version} has this model already; its alias is {alias}")
        return
    result = run_stage(job).metrics
    click.echo(f"registered {model} version {result['version']}; its alias is {alias}")


@click.command()
@project_option
@folder_argument
def release(folder: Path) -> None:
    """Add collection, index and hubness bank of the run in FOLDER to the registered version of its
    model.

    The version and these files are one release: 'python -m pipelines promote', also with
    --rollback, moves them together, and 'bifocal serve --model models:/bifocal@champion' serves
    them. A version has the release that was added last, without the items that a service or
    'bifocal delete --model' deleted. Files of earlier releases stay in the registry until 'python
    -m pipelines clean', so adding an earlier run again uploads nothing.
    """
    from runtime.artifacts import artifact_hash
    from runtime.mlflow.releases import find_version, log_release, read_digest

    _, _, (model, _) = _registration(folder)
    onnx, collection, index, embedding = (
        folder / "artifacts" / name for name in ("onnx", "collection", "index", "embedding")
    )
    version = find_version(model, artifact_hash(onnx))
    logged = log_release(version, onnx, collection, index, embedding)
    click.echo(
        f"{model} version {version.number} {'now has' if logged else 'has'} the release "
        f"{read_digest(version)[:12]}{'' if logged else ', whose files were logged already'}"
    )


@click.command()
@project_option
@artifacts_option
@click.option("--policy", type=FILE, help="Policy; by default pipelines/policies/promotion.yaml.")
@click.option(
    "--version",
    "number",
    type=click.IntRange(min=1),
    help="Version to promote instead of the candidate.",
)
@click.option("--force", is_flag=True, help="Promote even if checks fail; needs --reason.")
@click.option(
    "--rollback",
    is_flag=True,
    help="Make the previous champion the champion again; veto the present one.",
)
@click.option(
    "--stale", is_flag=True, help="Roll back although the previous release has other images."
)
@click.option("--reason", default="", help="Reason for --force or --rollback; it is recorded.")
@click.option("--unlock", is_flag=True, help="Remove the lock that a killed promotion left.")
def promote(
    artifacts: Path | None,
    policy: Path | None,
    number: int | None,
    force: bool,
    rollback: bool,
    stale: bool,
    reason: str,
    unlock: bool,
) -> None:
    """Compare the candidate with the champion under the policy of promotion.yaml; move the alias if
    it is better.

    Both models rank the test images that both evaluations share, from artifacts/dataset of the
    candidate's run.
    """
    if force + rollback + unlock > 1:
        raise click.UsageError("give only one of --force, --rollback and --unlock")
    if force and not reason:
        raise click.UsageError("--force needs --reason TEXT, which the registry records")
    from pipelines import policies
    from runtime.mlflow import alias_lock, get_version, roll_back
    from runtime.mlflow.aliases import unlock as unlock_promotions
    from runtime.notices import report

    file = policy_file(policy)
    rules = policies.load_promotion(file)
    if unlock:
        click.echo(f"removed {unlock_promotions(rules.model)}")
        return
    if rollback:
        with alias_lock(rules.model, rules.lock_timeout):
            aliases = {"champion": rules.champion, "previous": rules.previous}
            roll_back(rules.model, **aliases, reason=reason, stale=stale)
        restored = get_version(rules.model, rules.champion)
        name = f"version {restored.number if restored else '?'} of {rules.model}"
        report(
            f"bifocal promotion, {name} is the champion again: {reason or 'rolled back'}", "yellow"
        )
    else:
        from components.cluster.promote import promote as decide
        from runtime.s3.remote_files import fetch_remote_files

        fetch_remote_files()
        dataset, features, onnx = candidate_artifacts(artifacts)
        if number is None and onnx.is_dir():
            _check_candidate(rules, onnx)
        shown = policies.shown_path(file)
        decision = decide(
            rules, dataset, features, number=number, force=force * reason, policy_file=shown
        )
        _print(decision.record)
        for against in decision.reasons:
            click.secho(
                f"{'despite' if decision.promoted else 'not promoted'}: {against}", fg="red"
            )
        if decision.promoted:
            click.secho("promoted", fg="green")
    for alias in (rules.candidate, rules.champion, rules.previous):
        version = get_version(rules.model, alias)
        if version:
            click.echo(f"{alias}: version {version.number}")


def _check_candidate(rules: "PromotionPolicy", onnx: Path) -> None:
    """Raise ``ValueError`` if the candidate is another version than the model of this folder, such
    as a colleague's."""
    from runtime.artifacts import artifact_hash
    from runtime.mlflow import get_version
    from runtime.mlflow.releases import find_version

    candidate, own = (
        get_version(rules.model, rules.candidate),
        find_version(rules.model, artifact_hash(onnx)),
    )
    if candidate and candidate.number != own.number:
        raise ValueError(
            f"the candidate is version {candidate.number} of {rules.model}, not the model of {onnx}, "
            f"which is version {own.number}: choose one by --version"
        )


def _print(record: dict[str, Any]) -> None:
    for name, value in record["metrics"].items():
        click.echo(f"{name}: {value:g}")
    for note in record.get("notes", []):
        click.echo(f"note: {note}")


@click.command()
@project_option
@resources_option
@click.option("--policy", type=FILE, help="By default retention.yaml.")
@click.option("--delete", is_flag=True, help="Delete; without it, nothing is changed.")
def clean(overlays: tuple[Path, ...], policy: Path | None, delete: bool) -> None:
    """List models, releases, artifacts and checkpoints that nothing needs any more; with --delete,
    delete them.

    Needed are models and releases of versions with an alias and of the newest versions, the
    artifacts they were made of, the newest artifacts of each name, and all that changed in the last
    days, by pipelines/policies/retention.yaml. Models and releases are deleted some days after a
    call with --delete first found them unneeded; versions stay.
    """
    from components.cluster.clean import run
    from components.cluster.steps import CleanParams
    from pipelines import policies
    from pipelines.kubeflow.flows import clean_settings

    own = next(iter(project_files("retention.yaml")), policies.RETENTION)
    rules, model = (
        policies.load_retention(policy or own),
        policies.load_promotion(policy_file()).model,
    )
    settings = clean_settings(load_resources(None, overlays, local=True), rules, model)
    run(CleanParams.model_validate({"seed": 0, **settings, "delete": delete}))
