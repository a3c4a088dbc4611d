"""The compiled pipeline, read back as YAML: wiring, cache keys, resources, and the same bytes twice."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.catalog import pipeline_components
from components.cluster.train_distributed.spec import TrainDistributedParams
from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from runtime import artifacts, parameters

ROOT = Path(__file__).parents[3]
REVISION = "0123456789abcdef0123456789abcdef01234567"
VALUES = parameters.load(ROOT / "params.yaml")


def compiled(**changes: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pipeline and platform document of the default pipeline with other values."""
    text = kubeflow.compile_pipeline(parameters.merge(VALUES, changes), resources.read(), REVISION)
    pipeline, platform = yaml.safe_load_all(text)
    return pipeline, platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]


@pytest.fixture(scope="module")
def default() -> tuple[dict[str, Any], dict[str, Any]]:
    return compiled()


def line(pipeline: dict[str, Any]) -> dict[str, Any]:
    tasks: dict[str, Any] = pipeline["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    return tasks


def arguments(task: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.get("runtimeValue", {}).get("constant", value)
        for name, value in task["inputs"]["parameters"].items()
    }


def test_every_stage_runs_after_those_that_it_reads(default: tuple[dict[str, Any], dict[str, Any]]) -> None:
    tasks = line(default[0])
    writer = {output: stage.name.replace("_", "-") for stage in pipeline_components() for output in stage.outputs}
    for stage in pipeline_components():
        task = tasks[stage.name.replace("_", "-")]
        expected = {name: writer[name] for name in stage.inputs}
        found = {
            name: source["taskOutputArtifact"]["producerTask"]
            for name, source in task["inputs"].get("artifacts", {}).items()
        }
        assert found == expected
        assert set(task.get("dependentTasks", [])) == set(expected.values())


def test_push_reads_every_output_of_the_pipeline(default: tuple[dict[str, Any], dict[str, Any]]) -> None:
    inputs = line(default[0])["push"]["inputs"]["artifacts"]
    assert sorted(inputs) == sorted(name for stage in pipeline_components() for name in stage.outputs)


def test_parameters_are_canonical_json_of_the_own_section_and_code_is_in_the_cache_key(
    default: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    for stage in pipeline_components():
        found = arguments(line(default[0])[stage.name.replace("_", "-")])
        assert json.loads(found["parameters"]) == {"seed": VALUES["seed"], stage.name: VALUES[stage.name]}
        assert found["parameters"] == json.dumps(json.loads(found["parameters"]), sort_keys=True, separators=(",", ":"))
        assert found["code"] == artifacts.code_hash(ROOT, [f"components/{stage.name}", *stage.code])


def test_a_change_of_one_section_changes_the_arguments_of_one_stage(
    default: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    other, _ = compiled(train_embedding={"epochs": 77})
    changed = [name for name, task in line(other).items() if arguments(task) != arguments(line(default[0])[name])]
    assert sorted(changed) == ["record", "train-embedding"]


def test_the_same_bytes_twice_and_no_path_of_this_machine() -> None:
    texts = {kubeflow.compile_pipeline(VALUES, resources.read(), REVISION) for _ in range(2)}
    (text,) = texts
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


def test_a_graph_compiles_without_torch_and_without_mlflow() -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['mlflow'] = None\n"
        "import pathlib, yaml; from pipelines import kubeflow, resources\n"
        "kubeflow.compile_pipeline(yaml.safe_load(pathlib.Path('params.yaml').read_text()), resources.read(), 'a')"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_resources_secrets_and_retries_of_the_training(default: tuple[dict[str, Any], dict[str, Any]]) -> None:
    given = resources.read().of("train_embedding")
    assert given.gpu is not None
    pipeline, platform = default
    container = pipeline["deploymentSpec"]["executors"]["exec-train-embedding"]["container"]
    assert container["image"] == resources.read().images["gpu"]
    assert container["args"] == ["--executor-input", "{{$}}"]
    assert container["resources"]["resourceMemoryLimit"] == given.memory
    assert container["resources"]["accelerator"]["resourceType"] == given.gpu.type
    assert container["resources"]["accelerator"]["resourceCount"] == str(given.gpu.count)
    assert line(pipeline)["train-embedding"]["retryPolicy"]["maxRetryCount"] == given.retries
    pod = platform["exec-train-embedding"]
    assert pod["activeDeadlineSeconds"] == str(given.timeout)
    assert pod["emptyDirMounts"][0]["sizeLimit"] == given.shared_memory
    assert pod["tolerations"][0]["key"] == given.tolerations[0].key
    variables = {key["envVar"] for secret in pod["secretAsEnv"] for key in secret["keyToEnv"]}
    assert {"AWS_SECRET_ACCESS_KEY", "MLFLOW_TRACKING_PASSWORD"} <= variables


def test_the_notice_is_an_exit_task(default: tuple[dict[str, Any], dict[str, Any]]) -> None:
    notice = default[0]["root"]["dag"]["tasks"]["notify"]
    assert notice["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert notice["inputs"]["parameters"]["status"]["taskFinalStatus"]["producerTask"] == "exit-handler-1"


def test_files_of_the_user_come_from_a_pinned_revision() -> None:
    pipeline, _ = compiled(prepare_dataset={"corpus": {"name": "Flickr8k", "root": "data/flickr8k"}})
    tasks = line(pipeline)
    assert json.loads(arguments(tasks["fetch"])["parameters"])["fetch"] == {"paths": ["data/flickr8k"]}
    assert pipeline["root"]["inputDefinitions"]["parameters"]["revision"]["defaultValue"] == REVISION
    found = tasks["prepare-dataset"]["inputs"]["artifacts"]["user_files"]["taskOutputArtifact"]["producerTask"]
    assert found == "fetch"
    assert "artifacts" not in tasks["pretrain-sorter"]["inputs"]


@pytest.mark.parametrize("path", ["/data/flickr8k", "../data", "data/../../x"])
def test_a_path_that_no_other_machine_has_is_refused(path: str) -> None:
    with pytest.raises(parameters.ParameterError, match="outside the repository"):
        compiled(prepare_dataset={"corpus": {"name": "Flickr8k", "root": path}})


def test_features_are_extracted_in_shards_at_the_same_time_and_merged() -> None:
    pipeline, _ = compiled(extract_features={"pretraining": None, "weights": "data/backbone.safetensors"})
    tasks = line(pipeline)
    count = resources.read().of("extract_features").shards
    shards = {name: task for name, task in tasks.items() if name.startswith("extract-features")}
    assert sorted(arguments(task)["shard"] for task in shards.values()) == [
        f"{number}/{count}" for number in range(1, count + 1)
    ]
    assert {tuple(task["dependentTasks"]) for task in shards.values()} == {("fetch", "prepare-dataset")}
    merged = tasks["merge-features"]["inputs"]["artifacts"].values()
    assert {source["taskOutputArtifact"]["producerTask"] for source in merged} == set(shards)
    given = tasks["train-embedding"]["inputs"]["artifacts"]["features"]["taskOutputArtifact"]
    assert given == {"producerTask": "merge-features", "outputArtifactKey": "features"}
    assert tasks["merge-features"]["cachingOptions"]["enableCache"]


def test_features_of_a_backbone_that_is_trained_first_are_extracted_by_one_step(
    default: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    assert [name for name in line(default[0]) if name.startswith(("extract", "merge"))] == ["extract-features"]
    assert "shard" not in arguments(line(default[0])["extract-features"])


def test_several_nodes_are_a_job_of_kubeflows_trainer() -> None:
    given = resources.read()
    steps = {**given.steps, "train_embedding": given.of("train_embedding").model_copy(update={"nodes": 4})}
    text = kubeflow.compile_pipeline(VALUES, given.model_copy(update={"steps": steps}), REVISION)
    tasks = line(next(yaml.safe_load_all(text)))
    assert "train-embedding" not in tasks
    job = json.loads(arguments(tasks["train-job"])["parameters"])["train_job"]
    assert (job["nodes"], job["values"]) == (4, VALUES["train_embedding"])
    assert job["per_node"]["nvidia.com/gpu"] == "1"
    TrainDistributedParams(seed=1, **job)
    for reader in ("evaluate", "export-onnx"):
        source = tasks[reader]["inputs"]["artifacts"]["embedding"]["taskOutputArtifact"]
        assert source == {"producerTask": "train-job", "outputArtifactKey": "embedding"}


def test_what_is_on_s3_is_not_fetched() -> None:
    pipeline, _ = compiled(prepare_dataset={"corpus": {"name": "Flickr8k", "root": "s3://bucket/flickr8k"}})
    assert "fetch" not in line(pipeline)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"default": {"memory": "lots"}}, "memory"),
        ({"steps": {"train_embeddings": {}}}, "did you mean 'train_embedding'"),
        ({"gpus": 1}, "gpus"),
        ({"steps": {"evaluate": {"shards": 2}}}, "nothing puts its parts together"),
        ({"steps": {"evaluate": {"nodes": 2}}}, "only train_embedding runs on several"),
    ],
)
def test_wrong_resources_are_refused(change: dict[str, Any], expected: str, tmp_path: Path) -> None:
    values = parameters.merge(yaml.safe_load(resources.FILE.read_text()), change)
    (tmp_path / "resources.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(ValueError, match=expected):
        resources.read(tmp_path / "resources.yaml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{", "images.json is not YAML"), ('["a"]', "all of it: .*dictionary"), ('{"cpux": "a"}', "cpux.*'cpu', 'gpu'")],
)
def test_wrong_images_are_refused(text: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "images.json").write_text(text)
    with pytest.raises(ValueError, match=expected):
        resources.read_images(tmp_path / "images.json")
