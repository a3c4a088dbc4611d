"""The graph compiled for Kubeflow Pipelines: one container component for each step, from the stages' declarations."""

import json
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from kfp import compiler, components, dsl, kubernetes

from components import catalog
from components.catalog import pipeline_components
from components.cluster.fetch.spec import COMPONENT as FETCH
from components.cluster.notify.spec import COMPONENT as NOTIFY
from components.cluster.push.spec import COMPONENT as RECORD
from components.cluster.train_distributed.spec import COMPONENT as TRAIN_JOB
from pipelines.kubeflow.resources import Resources
from runtime import artifacts, parameters
from runtime.kfp_executor import CODE, PARAMETERS, USER_FILES
from runtime.spec import Component

ROOT = Path(__file__).parents[2]
NAME = "bifocal"


def compile_pipeline(values: Mapping[str, Any], resources: Resources, revision: str) -> str:
    """The pipeline as YAML; the same text for the same arguments and code.

    Args:
        values: of ``params.yaml``, checked.
        revision: of ``resources.repository``, which the user's files are read from unless a run names another.

    Raises:
        ParameterError: a path is absolute, so that no other machine has it.
    """
    paths = {component.name: source_paths(component, values) for component in pipeline_components()}
    identity = json.dumps([revision, values], sort_keys=True)
    environment = {
        **resources.environment,
        "BIFOCAL_GIT_COMMIT": revision,
        "BIFOCAL_PIPELINE": sha256(identity.encode()).hexdigest()[:16],
    }

    def step(component: Component, section: Mapping[str, Any], **inputs: Any) -> dsl.PipelineTask:
        texts = [name for name, value in inputs.items() if not _is_artifact(value)]
        declared = _declare(component, resources, texts, [name for name in inputs if name not in texts])
        canonical = json.dumps({"seed": values["seed"], component.name: section}, sort_keys=True, separators=(",", ":"))
        given = {PARAMETERS: canonical, CODE: artifacts.code_hash(ROOT, component.all_code_paths)}
        task = declared(**given, **inputs)
        _equip(task, component.name, resources, environment)
        return task

    def pipeline(repository: str = resources.repository, revision: str = revision) -> None:
        where = {"repository": repository, "revision": revision}
        notice = step(NOTIFY, {})
        with dsl.ExitHandler(notice, name="line"):
            made: dict[str, Any] = {}
            user_files: dict[str, Any] = {}
            if any(paths.values()):
                fetched = step(FETCH, {"paths": sorted({path for found in paths.values() for path in found})}, **where)
                user_files[USER_FILES] = fetched.outputs[USER_FILES]
            for component in pipeline_components():
                inputs = {name: made[name] for name in component.inputs}
                if paths[component.name]:
                    inputs |= user_files
                count = _shards(component, values, resources)
                shards = [{"shard": f"{number}/{count}"} if count > 1 else {} for number in range(1, count + 1)]
                if resources.of(component.name).nodes > 1:
                    component, section = TRAIN_JOB, _train_job(component, values, resources, environment)
                else:
                    section = values[component.name]
                tasks = [step(component, section, **inputs, **shard) for shard in shards]
                if count > 1 and component.merge_step:
                    parts = {f"shard_{number}": task.output for number, task in enumerate(tasks, 1)}
                    tasks = [step(catalog.all_components()[component.merge_step], {}, **parts)]
                made |= {name: tasks[0].outputs[name] for name in component.outputs}
            if resources.record:
                step(RECORD, {"values": values}, **where, **made, **user_files)

    described = "Images with captions to a registered visual-semantic embedding."
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(dsl.pipeline(name=NAME, description=described)(pipeline), str(file))
        return file.read_text()


def source_paths(component: Component, values: Mapping[str, Any]) -> list[str]:
    """The user's files that a stage reads, from the repository's root; those on S3 are read by the stage itself."""
    section = values.get(component.name, {})
    paths = [path for path in component.user_paths(section).values() if not path.startswith("s3://")]
    for path in paths:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise parameters.ParameterError(
                f"{component.name}: {path} is outside the repository, where no other machine finds it: "
                "'dvc add' a copy below the root, or name an s3:// address"
            )
    return paths


def _train_job(
    component: Component, values: Mapping[str, Any], resources: Resources, environment: Mapping[str, str]
) -> dict[str, Any]:
    given = resources.of(component.name)
    gpu = {given.gpu.type: str(given.gpu.count)} if given.gpu else {}
    return {
        "values": values[component.name],
        "nodes": given.nodes,
        "image": resources.images[component.image],
        "runtime": resources.trainer.runtime,
        "folder": resources.trainer.folder,
        "per_node": {"cpu": given.cpu, "memory": given.memory, **gpu},
        "node_selector": given.node_selector,
        "tolerations": [toleration.model_dump(exclude_none=True) for toleration in given.tolerations],
        "environment": dict(environment),
        "secrets": resources.secrets,
        "timeout": given.timeout,
    }


def _shards(component: Component, values: Mapping[str, Any], resources: Resources) -> int:
    """Into how many steps the work is divided; one, if each of them would learn something of its own first."""
    section = json.dumps({"seed": values["seed"], **values[component.name]})
    whole = component.merge_step is None or not component.params.model_validate_json(section).shardable
    return 1 if whole else resources.of(component.name).shards


def _declare(component: Component, resources: Resources, texts: list[str], artifacts: list[str]) -> Any:
    """The step as a container component that needs no kfp inside its image."""
    strings = [PARAMETERS, CODE, *texts]
    status = [{"name": "status", "type": "PipelineTaskFinalStatus"}] if component is NOTIFY else []
    return components.load_component_from_text(
        yaml.safe_dump(
            {
                "name": component.name,
                "description": component.summary,
                "inputs": [
                    *({"name": name, "type": "String"} for name in strings),
                    *({"name": name, "type": "Artifact"} for name in artifacts),
                    *status,
                ],
                "outputs": [{"name": name, "type": "Artifact"} for name in component.outputs],
                "implementation": {
                    "container": {
                        "image": resources.images[component.image],
                        "command": ["python", "-m", "components", component.name],
                        "args": ["--executor-input", {"executorInput": None}],
                    }
                },
            }
        )
    )


def _equip(task: dsl.PipelineTask, name: str, resources: Resources, environment: Mapping[str, str]) -> None:
    given = resources.of(name)
    task.set_cpu_request(given.cpu).set_memory_request(given.memory).set_memory_limit(given.memory)
    if given.gpu:
        task.set_accelerator_type(given.gpu.type).set_accelerator_limit(given.gpu.count)
    if given.retries:
        task.set_retry(
            given.retries,
            backoff_duration=given.retry_after,
            backoff_factor=given.retry_factor,
            backoff_max_duration=given.retry_after_at_most,
        )
    # What tells, fetches or pushes does so for its effect; the result of an earlier run is none.
    task.set_caching_options(name not in (FETCH.name, RECORD.name, NOTIFY.name))
    for variable, value in sorted(environment.items()):
        task.set_env_variable(variable, value)
    kubernetes.set_timeout(task, given.timeout)
    for secret, keys in sorted(resources.secrets.items()):
        kubernetes.use_secret_as_env(task, secret_name=secret, secret_key_to_env=keys, optional=True)
    for label, value in sorted(given.node_selector.items()):
        kubernetes.add_node_selector(task, label_key=label, label_value=value)
    for toleration in given.tolerations:
        kubernetes.add_toleration(task, **toleration.model_dump())
    if given.shared_memory:
        kubernetes.empty_dir_mount(
            task, volume_name="shm", mount_path="/dev/shm", medium="Memory", size_limit=given.shared_memory
        )


def _is_artifact(value: Any) -> bool:
    return isinstance(value, dsl.pipeline_channel.PipelineArtifactChannel)
