"""The pipeline compiled for Kubeflow Pipelines: one container component per step, from the stage
declarations."""

import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kfp import compiler, dsl

from bifocal.durable import json_digest
from components.cluster.steps import FINGERPRINT, NOTIFY
from pipelines.kubeflow.flows import Flow, FlowName, stages_of
from pipelines.kubeflow.resources import Resources
from pipelines.kubeflow.tasks import TaskFactory
from pipelines.policies import PROMOTION
from runtime import parameters
from runtime.process import TERMINATION_LOG
from runtime.s3.checkpoints import FOLDER as CHECKPOINTS_FOLDER
from runtime.s3.uri import is_remote
from runtime.shared_store import VARIABLE as STORE_FOLDER
from runtime.spec import Component, replace_values

NAME = "bifocal"
DESCRIPTION = "Images with captions to a registered visual-semantic embedding."


def compile_pipeline(
    values: Mapping[str, Any],
    resources: Resources,
    revision: str,
    flow: FlowName = "train",
    policy_file: Path = PROMOTION,
) -> str:
    """Return the compiled pipeline as YAML. Equal arguments and code give equal bytes.

    ``values`` are validated; user files are read from the commit ``revision``, which a run may
    override, or in place if ``resources`` name no repository. ``policy_file`` decides on
    promotions.
    """
    components = stages_of(flow, values)
    portable = bool(resources.repository)
    if not portable:
        values = {
            **values,
            **{component.name: _in_place(component, values) for component in components},
        }
    sources = {
        component.name: user_paths(component, values, portable=portable) for component in components
    }
    environment = {
        **resources.environment,
        "BIFOCAL_GIT_COMMIT": revision,
        "BIFOCAL_RUN_NAME": f"{resources.environment.get('MLFLOW_EXPERIMENT_NAME', NAME)} {flow}",
        "BIFOCAL_PIPELINE": json_digest([revision, values])[:16],
        TERMINATION_LOG: "/dev/termination-log",
    }
    if resources.checkpoints:
        environment[CHECKPOINTS_FOLDER] = resources.checkpoints
    if resources.store:
        environment[STORE_FOLDER] = resources.store.mount_path
    task = TaskFactory(resources, environment, values["seed"])

    def pipeline(repository: str = resources.repository, revision: str = revision) -> None:
        checkout = {"repository": repository, "revision": revision}
        with dsl.ExitHandler(task(NOTIFY, {}), name="line"):
            named = {name: paths for name, paths in sources.items() if paths}
            fingerprint = task(FINGERPRINT, {"sources": named}, **checkout)
            graph = Flow(task, values, sources, fingerprint, checkout, policy_file)
            getattr(graph, flow.replace("-", "_"))()

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(
            dsl.pipeline(name=NAME, description=DESCRIPTION)(pipeline), str(file)
        )
        return file.read_text()


def user_paths(
    component: Component, values: Mapping[str, Any], *, portable: bool = True
) -> list[str]:
    """Return the user files of a stage: s3:// addresses, and paths, which are relative to the root
    if ``portable``."""
    section = values[component.name]
    paths = sorted(set(component.user_paths(section).values()))
    if not portable:
        return paths
    for reason in component.typed(section, values["seed"]).local_files():
        raise parameters.ParameterError(f"{component.name}: {reason}")
    for path in paths:
        if not is_remote(path) and (
            PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts
        ):
            raise parameters.ParameterError(
                f"{component.name}: {path} is outside the repository, so other machines do not "
                "have it: 'dvc add' a copy below the root, or use an s3:// path"
            )
    return paths


def _in_place(component: Component, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a stage with absolute paths, because steps have another working
    directory."""
    paths = component.user_paths(values[component.name])
    absolute = {
        location: str(Path(path).absolute())
        for location, path in paths.items()
        if not is_remote(path)
    }
    return replace_values(values[component.name], absolute)
