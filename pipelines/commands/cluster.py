"""Commands that compile the pipeline: ``compile``, ``preflight``, ``run`` and ``schedule``."""

import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bifocal.registry import split
from components import catalog
from pipelines.commands.finished import decision_sentence, keep_artifacts
from pipelines.commands.project import (
    RUNS,
    chosen_project,
    load_resources,
    policy_file,
    project_files,
    project_option,
    run_folder,
)
from runtime import parameters
from runtime.checkout import ask_git, git_answer, tracking_uri

if TYPE_CHECKING:
    from pipelines.kubeflow.flows import FlowName
    from pipelines.kubeflow.resources import Resources

# Variables that stages read. The compiled ones name the servers and secrets of a cluster.
PREFIXES = ("MLFLOW_", "AWS_", "BIFOCAL_")

recipes_option = click.option(
    "--recipe",
    "recipes",
    multiple=True,
    type=click.Path(path_type=Path),
    help="File that overlays params.yaml; may be repeated.",
)
settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set one value of params.yaml, as in --set "
    "prepare_dataset.corpus.root=s3://bucket/coco; may be repeated.",
)
images_option = click.option(
    "--images",
    type=click.Path(path_type=Path, exists=True),
    help='Image digests as JSON, {"cpu": "NAME@sha256:...", "gpu": ...}: images.json of '
    "containers/build.py.",
)
resources_option = click.option(
    "--resources",
    "overlays",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="File that overlays pipelines/kubeflow/resources.yaml; may be repeated.",
)
flow_option = click.option(
    "--flow",
    type=click.Choice(["train", "retrain", "refresh", "refresh-previous", "monitor", "clean"]),
    default="train",
    show_default=True,
    help="train: all stages. retrain: train if the data changed enough. refresh: embed new "
    "images with the champion. refresh-previous: embed them with the version before it, "
    "for a rollback. monitor: compare the last days with the training. clean: list or "
    "delete what nothing needs.",
)
revision_option = click.option(
    "--revision", help="Git commit that user files are read from; by default this checkout's."
)
demo_option = click.option(
    "--demo", is_flag=True, help="Train drawn scenes, the default of params.yaml, on a cluster."
)
skipped_checks_option = click.option(
    "--skip-check",
    "skipped",
    multiple=True,
    type=click.Choice(
        ["server", "images", "repository", "buckets", "permissions", "services", "all"]
    ),
    help="Check of the cluster to omit; may be repeated.",
)


@dataclass(frozen=True)
class Pipeline:
    """A flow of the pipeline with its parameters, the resources of its steps, and the commit of its
    user files."""

    values: Mapping[str, Any]
    resources: "Resources"
    revision: str
    flow: "FlowName" = "train"

    def compile(self) -> str:
        """Return the compiled pipeline as YAML."""
        from pipelines.kubeflow.compile import compile_pipeline

        return compile_pipeline(
            self.values, self.resources, self.revision, self.flow, policy_file()
        )


def refuse_drawn_scenes(values: Mapping[str, Any], flow: "FlowName") -> None:
    """Raise ``ValueError`` if a cluster would train the drawn scenes of ``params.yaml``, which
    nobody named."""
    from pipelines.kubeflow.flows import stages_of

    reads_data = any(stage.name == "prepare_dataset" for stage in stages_of(flow, values))
    if reads_data and split(values["prepare_dataset"]["corpus"])[0] == "Scenes":
        raise ValueError(
            f"the flow {flow} would train drawn scenes: name your images by --project or "
            "--recipe, or give --demo"
        )


def pipeline_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a pipeline, and the ``Pipeline`` of their values as the first
    argument."""

    @wraps(command)
    def with_pipeline(
        recipes: Sequence[Path],
        settings: Sequence[str],
        flow: "FlowName",
        images: Path | None,
        overlays: Sequence[Path],
        revision: str | None,
        **options: Any,
    ) -> None:
        recipes = [*project_files("recipe.yaml"), *recipes]
        is_here = options.get("runner") == "host" and not options["push"]
        commit = revision or (
            ask_git("rev-parse", "HEAD") or "unknown" if is_here else head_commit()
        )
        values = load_parameters(recipes, settings)
        if not options.pop("demo", True) and options["runner"] == "cluster" and not recipes:
            refuse_drawn_scenes(values, flow)
        resources = load_resources(images, overlays, local=options.get("runner") == "host")
        command(Pipeline(values, resources, commit, flow), **options)

    for option in (
        revision_option,
        resources_option,
        images_option,
        flow_option,
        settings_option,
        recipes_option,
        project_option,
    ):
        with_pipeline = option(with_pipeline)
    return with_pipeline


def load_parameters(recipes: Sequence[Path | str], settings: Sequence[str] = ()) -> dict[str, Any]:
    """Return the validated values of ``params.yaml`` with ``recipes`` and ``settings``."""
    values = parameters.load(Path("params.yaml"), [Path(recipe) for recipe in recipes], settings)
    parameters.validate(values, catalog.configurable_components().values())
    return values


def head_commit() -> str:
    """Return the commit of this checkout."""
    commit, problem = git_answer("rev-parse", "HEAD")
    if not commit:
        raise ValueError(f"no commit of this folder is known ({problem}): name one by --revision")
    return commit


def check_cluster(
    values: Sequence[Mapping[str, Any]],
    resources: "Resources",
    revision: str,
    flows: Collection["FlowName"],
    skipped: Sequence[str],
) -> int:
    """Run the checks for the flows of pipelines with some parameters; print and count the checks
    that could not be made."""
    from pipelines.kubeflow.namespace import PreflightSubject
    from pipelines.kubeflow.preflight import check_all

    namespace = os.environ.get("KFP_NAMESPACE")
    unknown = check_all(PreflightSubject(values, resources, revision, namespace, flows), skipped)
    for line in unknown:
        click.secho(f"not probed: {line}", fg="yellow", err=True)
    return len(unknown)


@click.command("compile")
@pipeline_options
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("pipeline.yaml"), show_default=True
)
def compile_command(pipeline: Pipeline, output: Path) -> None:
    """Compile the pipeline for Kubeflow."""
    output.write_text(pipeline.compile())
    click.echo(output)


@click.command()
@pipeline_options
@skipped_checks_option
def preflight(pipeline: Pipeline, skipped: tuple[str, ...]) -> None:
    """Check whether a cluster could run the pipeline: its server, images, repository, buckets and
    permissions.

    'run --runner cluster' and 'schedule apply' make the same checks first. KFP_NAMESPACE is the
    namespace of the runs.
    """
    unknown = check_cluster(
        [pipeline.values], pipeline.resources, pipeline.revision, [pipeline.flow], skipped
    )
    if unknown:
        raise ValueError(
            f"no problem was found, but {unknown} checks could not be made: --skip-check NAME "
            "leaves one out"
        )
    click.echo("no problem was found")


@click.command()
@pipeline_options
@skipped_checks_option
@demo_option
@click.option(
    "--runner",
    type=click.Choice(["host", "container", "cluster"]),
    default="host",
    show_default=True,
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    help="Folder of a local run, by default runs/kubeflow/local, or runs/kubeflow/NAME of a "
    "project. A second run takes finished steps from it.",
)
@click.option(
    "--parallel",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Parallel steps of a local run.",
)
@click.option(
    "--no-cache",
    is_flag=True,
    help="Run every step again, such as after files of a previous run were deleted.",
)
@click.option(
    "--push", "--record", is_flag=True, help="Push the outputs of a local run to the DVC remote."
)
def run(
    pipeline: Pipeline,
    skipped: tuple[str, ...],
    runner: str,
    folder: Path | None,
    parallel: int,
    no_cache: bool,
    push: bool,
) -> None:
    """Compile the pipeline and run it: on this machine, in containers (DOCKER_HOST) or on a cluster
    (KFP_ENDPOINT).

    This machine reads your files in place. Containers, a cluster and --push read them at a commit,
    or from S3.
    """
    resources = pipeline.resources.model_copy(update={"cache": False} if no_cache else {})
    if runner == "cluster":
        from pipelines.kubeflow.client import Target, kfp_client, submit

        check_cluster([pipeline.values], resources, pipeline.revision, [pipeline.flow], skipped)
        with kfp_client() as client:
            text = replace(pipeline, resources=resources).compile()
            click.echo(submit(text, Target(client, resources, pipeline.revision)))
        return
    from pipelines.local.container_engine import ContainerEngine
    from pipelines.local.engine import Engine, HostEngine
    from pipelines.local.runner import LocalRun
    from pipelines.local.task import TaskState
    from runtime.mlflow import end_pipeline_run

    environment = {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}
    engine: Engine
    if runner == "container":
        server = environment.setdefault("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
        if not server.startswith("http"):
            raise ValueError(
                f"MLFLOW_TRACKING_URI is {server}, which containers cannot reach: 'make "
                "mlflow' starts a server"
            )
        engine = ContainerEngine(environment, Path.cwd())
    else:
        engine = HostEngine({"MLFLOW_TRACKING_URI": tracking_uri()})
    # A run on this machine has checkpoints and a store if BIFOCAL_CHECKPOINTS and BIFOCAL_STORE are
    # set here, not those of the cluster.
    resources = resources.model_copy(update={"push": push, "checkpoints": None, "store": None})
    is_here = runner == "host" and not push
    if is_here:
        # One process extracts faster than several that start one after another.
        steps = {
            name: step.model_copy(update={"shards": 1}) for name, step in resources.steps.items()
        }
        resources = resources.model_copy(update={"repository": "", "steps": steps})
    folder = folder or run_folder(RUNS)
    text = replace(pipeline, resources=resources).compile()
    # SIGTERM stops the running steps, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    arguments = {} if is_here else {"repository": str(Path.cwd())}
    local = LocalRun(text, folder, engine, arguments, parallel)
    try:
        states = local.execute()
    except KeyboardInterrupt:  # the flow did not reach its exit handler
        if project := chosen_project():
            os.environ.setdefault("MLFLOW_EXPERIMENT_NAME", project)
        with suppress(OSError):
            end_pipeline_run(local.run_id, succeeded=False)
        raise
    failed = [name for name, state in states.items() if state.failed]
    if failed:
        logs = folder / failed[0] / "log-*.txt"
        raise ValueError(f"{failed[0]} failed: see {logs}; run the same command again to continue")
    if "register-model" in states and states["register-model"] is not TaskState.OMITTED:
        keep_artifacts(folder, pipeline.values, states)
    decided = [
        folder / name / "promotion" / "decision.json"
        for name, state in states.items()
        if name.startswith("promote") and state is TaskState.COMPLETE
    ]
    if decided and decided[-1].is_file():
        click.echo(decision_sentence(decided[-1], pipeline.flow))
    report = folder / "evaluate" / "report" / "index.html"
    if report.is_file():
        click.echo(f"Report: {report.resolve().as_uri()}")


@click.command()
@project_option
@images_option
@resources_option
@skipped_checks_option
@demo_option
@click.argument("action", type=click.Choice(["diff", "apply", "list"]))
def schedule(
    images: Path | None,
    overlays: tuple[Path, ...],
    skipped: tuple[str, ...],
    demo: bool,
    action: str,
) -> None:
    """Compare the schedules of the cluster at KFP_ENDPOINT with the declared ones, change them, or
    list them.

    pipelines/kubeflow/schedules.yaml declares the schedules, or the file of a project. Each is
    pinned to this commit, its images and its parameters.
    """
    from pipelines.kubeflow import schedule as schedules
    from pipelines.kubeflow.client import Target, kfp_client

    declared = schedules.load(*project_files("schedules.yaml"))
    for entry in declared.values():
        if action == "apply" and entry.enabled and not entry.recipes and not demo:
            refuse_drawn_scenes(load_parameters([]), entry.flow)
    with kfp_client() as client:
        prefix = schedules.prefix_of(chosen_project())
        if action == "list":
            click.echo(
                "\n".join(schedules.list_schedules(client, prefix))
                or "the server has no schedule of this project"
            )
            return
        resources, revision = load_resources(images, overlays), head_commit()

        def pipeline_of(entry: schedules.Schedule) -> Pipeline:
            return Pipeline(load_parameters(entry.recipes), resources, revision, entry.flow)

        if action == "apply":
            values = [pipeline_of(entry).values for entry in declared.values()]
            flows = {entry.flow for entry in declared.values() if entry.enabled}
            check_cluster(values, resources, revision, flows, skipped)
        target = Target(client, resources, revision, prefix)
        changes = schedules.plan(declared, target, lambda entry: pipeline_of(entry).compile())
        for change in changes:
            click.echo(f"{change.action:8}{change.name}")
        if action == "apply":
            for name in schedules.apply(declared, changes, target):
                click.echo(
                    f"{name}: a run is in progress, so its previous schedule is paused; the "
                    "next apply deletes it"
                )
