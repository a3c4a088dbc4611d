"""``python -m pipelines run``."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.commands import options
from pipelines.commands.compile import compile_pipeline_for, head_commit, load_parameters, load_resources
from pipelines.commands.preflight import check_cluster
from runtime.checkout import tracking_uri

if TYPE_CHECKING:
    from pipelines.kubeflow.flows import FlowName

# Variables that stages read. The compiled ones name the servers and secrets of a cluster.
PREFIXES = ("MLFLOW_", "AWS_", "BIFOCAL_")


@click.command()
@options.recipes
@options.settings
@options.flow
@options.images
@options.resources
@options.revision
@options.skipped_checks
@click.option("--runner", type=click.Choice(["host", "container", "cluster"]), default="host", show_default=True)
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("runs/kubeflow/local"),
    show_default=True,
    help="Folder of a local run. A second run in the same folder takes finished steps from the cache.",
)
@click.option(
    "--parallel", type=click.IntRange(min=1), default=1, show_default=True, help="Parallel steps of a local run."
)
@click.option(
    "--no-cache", is_flag=True, help="Run every step again, such as after files of a former run were deleted."
)
@click.option("--push", "--record", is_flag=True, help="Push the outputs of a local run to the DVC remote.")
def run(
    recipes: tuple[Path, ...],
    settings: tuple[str, ...],
    flow: "FlowName",
    images: Path | None,
    overlays: tuple[Path, ...],
    revision: str | None,
    skipped: tuple[str, ...],
    runner: str,
    folder: Path,
    parallel: int,
    no_cache: bool,
    push: bool,
) -> None:
    """Compile the pipeline and run it: on this machine, in containers (DOCKER_HOST) or on a cluster (KFP_ENDPOINT)."""
    cluster = load_resources(images, overlays)
    if no_cache:
        cluster = cluster.model_copy(update={"cache": False})
    revision = revision or head_commit()
    if runner == "cluster":
        from pipelines.kubeflow.client import Target, kfp_client, submit

        check_cluster([load_parameters(recipes, settings)], cluster, revision, skipped, [flow])
        text = compile_pipeline_for(recipes, cluster, revision, settings, flow)
        with kfp_client() as client:
            click.echo(submit(text, Target(client, cluster, revision)))
        return
    from pipelines.local.container_engine import ContainerEngine
    from pipelines.local.engine import Engine
    from pipelines.local.host_engine import HostEngine
    from pipelines.local.runner import LocalRun

    environment = {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}
    engine: Engine
    if runner == "container":
        server = environment.setdefault("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
        if not server.startswith("http"):
            raise ValueError(
                f"MLFLOW_TRACKING_URI is {server}, which containers cannot reach: 'make mlflow' starts a server"
            )
        engine = ContainerEngine(environment, Path.cwd())
    else:
        engine = HostEngine({"MLFLOW_TRACKING_URI": tracking_uri()})
    # A run on this machine has checkpoints and a store if BIFOCAL_CHECKPOINTS and BIFOCAL_STORE are set here, not those
    # of the cluster.
    cluster = cluster.model_copy(update={"push": push, "checkpoints": None, "store": None})
    text = compile_pipeline_for(recipes, cluster, revision, settings, flow)
    # SIGTERM stops the running steps, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    states = LocalRun(text, folder, engine, {"repository": str(Path.cwd())}, parallel).execute()
    failed = [name for name, state in states.items() if state.failed]
    if failed:
        logs = folder / failed[0] / "log-*.txt"
        raise ValueError(f"{failed[0]} failed: see {logs}; run the same command again to continue")
