"""The graph's command line: ``python -m pipelines render``."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import yaml

from components import catalog
from pipelines import dvc
from runtime import parameters

recipes = click.option(
    "--recipe",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A file that overlays params.yaml; may be repeated.",
)
images = click.option(
    "--images", type=click.Path(path_type=Path, exists=True), help='JSON: {"cpu": "NAME@sha256:...", "gpu": ...}.'
)


@click.group(context_settings={"max_content_width": 110})
def main() -> None:
    """Render, compile, run, schedule and promote what the stages' declarations say."""


@main.command()
@click.option("--recipe", type=click.Path(path_type=Path), help="Render runs/<its name> for this recipe instead.")
@click.option("--check", is_flag=True, help="Write nothing; fail if dvc.yaml is not what would be written.")
def render(recipe: Path | None, check: bool) -> None:
    """Write dvc.yaml.

    A recipe gets a folder of its own, runs/<name of the recipe>, with the overlaid params.yaml, a dvc.yaml and its
    artifacts, so that it overwrites nothing of the default run: 'dvc repro runs/<name>/dvc.yaml'.
    """
    values = parameters.load(Path("params.yaml"), [recipe] if recipe else [])
    if recipe is None:
        text, file = dvc.render(values), Path("dvc.yaml")
        if check:
            if not file.is_file() or file.read_text() != text:
                raise ValueError("dvc.yaml differs from the declarations: run 'python -m pipelines render'")
            return
    else:
        home = Path("runs") / recipe.parent.name / recipe.stem
        home.mkdir(parents=True, exist_ok=True)
        (home / "params.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
        text, file = dvc.render(values, home.as_posix()), home / "dvc.yaml"
    file.write_text(text)
    click.echo(file)


@main.command()
@click.argument("home", type=click.Path(path_type=Path), default=Path())
def figures(home: Path) -> None:
    """Print the figures of the run in HOME: here, or runs/<name of a recipe>."""
    from rich.console import Console

    from pipelines.metrics import figures_table

    Console().print(figures_table(home), soft_wrap=False)


@main.command("compile")
@recipes
@images
@click.option("--revision", help="Commit of the repository in resources.yaml; this checkout's, unless given.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("pipeline.yaml"), show_default=True)
def compile_(recipe: tuple[Path, ...], images: Path | None, revision: str | None, output: Path) -> None:
    """Compile the pipeline for Kubeflow."""
    output.write_text(compiled(recipe, images, revision))
    click.echo(output)


@main.command()
@recipes
@images
@click.option("--runner", type=click.Choice(["host", "container", "cluster"]), default="host", show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("runs/kubeflow/local"),
    show_default=True,
    help="Of a local run; the same once more goes on where it failed.",
)
@click.option("--parallel", type=click.IntRange(min=1), default=1, show_default=True, help="Steps of a local run.")
@click.option("--revision", help="Commit that the user's files are read from; this checkout's, unless given.")
@click.option("--record", is_flag=True, help="Push what a local run made to the DVC remote, as a cluster does.")
def run(
    recipe: tuple[Path, ...],
    images: Path | None,
    runner: str,
    folder: Path,
    parallel: int,
    revision: str | None,
    record: bool,
) -> None:
    """Compile the pipeline and run it: on this machine, in containers by DOCKER_HOST, or on KFP_ENDPOINT's cluster."""
    if runner == "cluster":
        from pipelines.kubeflow import client as cluster

        click.echo(cluster.submit(compiled(recipe, images, revision)))
        return
    from pipelines.local.engines import ContainerEngine, Engine, HostEngine
    from pipelines.local.runner import Run

    # What the stages read of it: the keys of a cluster's secrets are not here.
    given = {name: value for name, value in os.environ.items() if name.startswith(("MLFLOW_", "AWS_", "BIFOCAL_"))}
    engine: Engine
    if runner == "container":
        server = given.setdefault("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
        if not server.startswith("http"):
            raise ValueError(
                f"MLFLOW_TRACKING_URI is {server}, which no container reaches: 'make mlflow' starts a server"
            )
        engine = ContainerEngine(given, folder, Path.cwd())
    else:
        engine = HostEngine({"MLFLOW_TRACKING_URI": given.get("MLFLOW_TRACKING_URI", "sqlite:///mlflow.db")})
    text = compiled(recipe, images, revision, record=record)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what ends this ends the steps too, as Ctrl-C does
    states = Run(text, folder, engine, {"repository": str(Path.cwd())}, parallel).start()
    failed = [name for name, state in states.items() if not state.good]
    if failed:
        raise ValueError(f"{failed[0]} did not succeed: see {folder / failed[0] / 'log.txt'}; run it again to go on")


@main.command()
@click.option("--rollback", is_flag=True, help="Make the previous champion the champion again.")
@click.option("--unlock", is_flag=True, help="Remove the lock that a killed promotion left.")
def promote(rollback: bool, unlock: bool) -> None:
    """Compare the candidate with the champion, by the rules of promotion.yaml, and move the alias if it is better."""
    if rollback and unlock:
        raise click.UsageError("--rollback and --unlock are two things: give one of them, then the other")
    from pipelines.promotion import policy as decision
    from pipelines.promotion import promote as promotion
    from runtime.mlflow import get_version, remove_lock

    rules = decision.read()
    if unlock:
        click.echo(f"removed the lock of {remove_lock(rules.model)}")
        return
    if rollback:
        promotion.rollback(rules)
    else:
        made = promotion.promote(rules)
        for name, figure in made.figures.items():
            click.echo(f"{name}: {figure:g}")
        for reason in made.reasons:
            click.secho(f"not promoted: {reason}", fg="red")
        if made.promoted:
            click.secho("promoted", fg="green")
    for alias in (rules.candidate, rules.champion, rules.previous):
        version = get_version(rules.model, alias)
        if version:
            click.echo(f"{alias}: version {version.number}")


@main.command()
def doctor() -> None:
    """Say what is missing on this machine, and the command that mends it."""
    from pipelines.doctor import examine

    bad = 0
    for found in examine():
        mark, colour = {True: ("ok", "green"), False: ("WRONG", "red"), None: ("-", "yellow")}[found.good]
        click.secho(f"{mark:6}{found.name}: {found.said}", fg=colour)
        if not found.good and found.mend:
            click.echo(f"      {found.mend}")
        bad += found.good is False
    if bad:
        raise ValueError(f"{bad} of these must be mended")


@main.command()
@images
@click.argument("action", type=click.Choice(["diff", "apply", "list"]))
def schedule(images: Path | None, action: str) -> None:
    """Show what would change on the cluster at KFP_ENDPOINT, change it, or list what is there.

    The declarations are in pipelines/kubeflow/schedules.yaml; each is pinned to this commit, its images and its parameters.
    """
    from pipelines.kubeflow import client as cluster
    from pipelines.kubeflow import schedule as scheduling

    schedules = scheduling.read()
    with cluster.connected() as client:
        if action == "list":
            click.echo("\n".join(scheduling.listed(client)) or "no schedule of this project")
            return
        found = scheduling.changes(
            schedules, client, lambda recipes: compiled(tuple(map(Path, recipes)), images, revision=None)
        )
        for change in found:
            click.echo(f"{change.kind:8}{change.name}")
        if action == "apply":
            scheduling.apply(schedules, found, client)


def compiled(recipe: tuple[Path, ...], images: Path | None, revision: str | None, *, record: bool | None = None) -> str:
    """The pipeline of params.yaml with recipes; ``record`` in the place of what resources.yaml says."""
    from pipelines.kubeflow import compile as kubeflow
    from pipelines.kubeflow import resources

    values = parameters.load(Path("params.yaml"), recipe)
    parameters.validate(values, catalog.configurable_components().values())
    given = resources.read(images=resources.read_images(images) if images else None)
    if record is not None:
        given = given.model_copy(update={"record": record})
    return kubeflow.compile_pipeline(values, given, revision or head())


def head() -> str:
    """The commit of this checkout."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"no commit here ({done.stderr.strip()}): name one with --revision")
    return done.stdout.strip()


if __name__ == "__main__":
    try:
        main(prog_name="python -m pipelines")
    except (ValueError, OSError) as error:
        click.secho(f"error: {error}", fg="red", err=True)
        sys.exit(1)
