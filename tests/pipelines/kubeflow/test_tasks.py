"""Tasks of the compiled pipeline: resources, retries, run id, types of inputs and outputs."""

import json
from pathlib import Path

import yaml
from kfp import compiler, dsl

from pipelines.kubeflow import resources
from pipelines.kubeflow.tasks import TaskFactory
from runtime.spec import Component, Params
from tests.pipelines.compiled import REVISION, Documents, tasks_of


def test_training_gets_its_resources_secrets_and_retries(default: Documents) -> None:
    step = resources.load().for_step("train_embedding")
    assert step.gpu is not None
    pipeline, platform = default
    container = pipeline["deploymentSpec"]["executors"]["exec-train-embedding"]["container"]
    assert container["image"] == resources.load().images["gpu"]
    assert container["args"] == ["--executor-input", "{{$}}"]
    assert container["resources"]["resourceMemoryLimit"] == step.memory
    assert container["resources"]["accelerator"]["resourceType"] == step.gpu.type
    assert container["resources"]["accelerator"]["resourceCount"] == str(step.gpu.count)
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment.items() >= resources.load().environment.items()
    assert environment["BIFOCAL_GIT_COMMIT"] == REVISION
    assert tasks_of(pipeline)["train-embedding"]["retryPolicy"]["maxRetryCount"] == step.retries
    pod = platform["exec-train-embedding"]
    assert pod["activeDeadlineSeconds"] == str(step.timeout)
    assert pod["emptyDirMounts"][0]["sizeLimit"] == step.shared_memory
    assert pod["tolerations"][0]["key"] == step.tolerations[0].key
    variables = {key["envVar"] for secret in pod["secretAsEnv"] for key in secret["keyToEnv"]}
    assert {"AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD"} <= variables


def test_retries_have_room_for_every_attempt_at_its_full_timeout(
    default: Documents,
) -> None:
    """Argo stops retrying at maxDuration after the *first* attempt started, so that has to cover
    all attempts."""
    pipeline, platform = default
    for name, task in {**tasks_of(pipeline), **pipeline["root"]["dag"]["tasks"]}.items():
        if name == "exit-handler-1":
            continue
        policy, timeout = (
            task["retryPolicy"],
            int(platform[f"exec-{name}"]["activeDeadlineSeconds"]),
        )
        last_start = 0.0
        for retry in range(policy["maxRetryCount"]):
            last_start += (
                timeout + seconds(policy["backoffDuration"]) * policy["backoffFactor"] ** retry
            )
        queue = resources.load().for_step(name.replace("-", "_")).queue_timeout
        assert seconds(policy["backoffMaxDuration"]) >= last_start + timeout + queue
        assert float(policy["backoffFactor"]).is_integer()  # Argo parses an int


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def test_every_container_has_the_id_of_the_run_and_no_cache_key_has_it(
    default: Documents,
) -> None:
    pipeline, platform = default
    assert set(platform) == set(pipeline["deploymentSpec"]["executors"])
    for pod in platform.values():
        assert pod["fieldPathAsEnv"] == [
            {"name": "KFP_RUN_ID", "fieldPath": "metadata.labels['pipeline/runid']"}
        ]
    assert "KFP_RUN_ID" not in json.dumps(tasks_of(pipeline))


def test_strings_that_a_step_returns_are_output_parameters(tmp_path: Path) -> None:
    toy = Component(
        name="toy",
        summary="Toy.",
        image="cpu",
        params=Params,
        outputs=("things",),
        parameter_outputs=("digest",),
    )
    task = TaskFactory(resources.load(), {}, 1)

    def pipeline() -> None:
        task(toy, {}, before=task(toy, {}).outputs["digest"])

    compiler.Compiler().compile(dsl.pipeline(name="toys")(pipeline), str(tmp_path / "toys.yaml"))
    compiled_toys = next(iter(yaml.safe_load_all((tmp_path / "toys.yaml").read_text())))
    assert compiled_toys["components"]["comp-toy"]["outputDefinitions"]["parameters"] == {
        "digest": {"parameterType": "STRING"}
    }
    before = compiled_toys["root"]["dag"]["tasks"]["toy-2"]["inputs"]["parameters"]["before"]
    assert before["taskOutputParameter"] == {"outputParameterKey": "digest", "producerTask": "toy"}


def test_artifacts_have_the_types_that_kubeflow_shows(default: Documents) -> None:
    components = default[0]["components"]

    def types(kind: str, name: str) -> dict[str, str]:
        artifacts = components[f"comp-{name}"][kind]["artifacts"]
        return {key: value["artifactType"]["schemaTitle"] for key, value in artifacts.items()}

    assert types("outputDefinitions", "evaluate") == {
        "metrics": "system.Artifact",
        "report": "system.Artifact",
        "scores": "system.Metrics",
        "page": "system.HTML",
    }
    assert types("outputDefinitions", "prepare-dataset") == {"dataset": "system.Dataset"}
    assert types("outputDefinitions", "train-embedding") == {"embedding": "system.Model"}
    assert types("inputDefinitions", "evaluate") == {
        "dataset": "system.Dataset",
        "features": "system.Dataset",
        "text": "system.Dataset",
        "embedding": "system.Model",
    }
