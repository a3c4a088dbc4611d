"""Compiled pipeline, read back as YAML: wiring, cache keys, resources, reproducible bytes."""

import json
from pathlib import Path

import pytest

from components.catalog import all_components
from components.cluster.steps import TRAIN_DISTRIBUTED
from pipelines.kubeflow import compile as kubeflow
from pipelines.kubeflow import resources
from pipelines.policies import load_promotion
from runtime.identity import image_key
from tests.pipelines.compiled import (
    REVISION,
    ROOT,
    SMALL_VALUES,
    STAGES,
    VALUES,
    Documents,
    arguments,
    compile_text,
    compiled,
    documents,
    task_name,
    tasks_of,
)

MERGE = all_components()["extract_features"].merge_step


def test_each_stage_depends_on_the_writers_of_its_inputs(default: Documents) -> None:
    tasks = tasks_of(default[0])
    writer = {output: task_name(stage.name) for stage in STAGES for output in stage.outputs}
    for stage in STAGES:
        task = tasks[task_name(stage.name)]
        expected = {name: writer[name] for name in stage.used_inputs(VALUES)}
        producers = {
            name: source["taskOutputArtifact"]["producerTask"]
            for name, source in task["inputs"].get("artifacts", {}).items()
        }
        assert producers == expected
        assert set(task["dependentTasks"]) == (set(expected.values()) or {"fingerprint"})


def test_a_sorter_is_pretrained_if_a_loss_reads_it(default: Documents) -> None:
    assert "pretrain-sorter" not in tasks_of(default[0])
    tasks = tasks_of(documents(compile_text(SMALL_VALUES))[0])  # has a loss on ranks
    sorter = tasks["train-embedding"]["inputs"]["artifacts"]["sorter"]["taskOutputArtifact"]
    assert sorter == {"producerTask": "pretrain-sorter", "outputArtifactKey": "sorter"}


def test_push_reads_every_output_of_the_pipeline(default: Documents) -> None:
    inputs = tasks_of(default[0])["push"]["inputs"]["artifacts"]
    assert sorted(inputs) == sorted(name for stage in STAGES for name in stage.outputs)


def test_promotion_follows_registration_and_gets_the_policy(default: Documents) -> None:
    task = tasks_of(default[0])["promote"]
    assert set(task["inputs"]["artifacts"]) == {"dataset", "features", "registration"}
    assert {"register-model", "release"} <= set(task["dependentTasks"])
    section = json.loads(arguments(task)["parameters"])["promote"]
    policy = load_promotion().model_dump(mode="json")
    assert section == {
        "policy": policy,
        "policy_file": "pipelines/policies/promotion.yaml",
        "decide_only": False,
    }
    outputs = default[0]["components"]["comp-promote"]["outputDefinitions"]["artifacts"]
    assert outputs["scores"]["artifactType"]["schemaTitle"] == "system.Metrics"
    without = resources.load().model_copy(update={"promote": False})
    text = kubeflow.compile_pipeline(VALUES, without, REVISION)
    assert "promote" not in tasks_of(documents(text)[0])


def test_parameters_are_canonical_json_of_one_section_and_the_code_hash_is_an_argument(
    default: Documents,
) -> None:
    for stage in STAGES:
        given = arguments(tasks_of(default[0])[task_name(stage.name)])
        assert json.loads(given["parameters"]) == {
            "seed": VALUES["seed"],
            stage.name: VALUES[stage.name],
        }
        assert given["parameters"] == json.dumps(
            json.loads(given["parameters"]), sort_keys=True, separators=(",", ":")
        )
        assert given["code"] == image_key(stage)


def test_a_changed_section_changes_the_arguments_of_one_stage(default: Documents) -> None:
    other, _ = compiled(export_onnx={"tolerance": 0.5})
    tasks = tasks_of(default[0])
    changed = [
        name for name, task in tasks_of(other).items() if arguments(task) != arguments(tasks[name])
    ]
    assert sorted(changed) == sorted(["push", "export-onnx"])


def test_compilation_gives_equal_bytes_and_no_path_of_this_machine() -> None:
    text = compile_text()
    assert kubeflow.compile_pipeline(VALUES, resources.load(), REVISION) == text
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


def test_steps_with_side_effects_are_not_cached(default: Documents) -> None:
    tasks = tasks_of(default[0])
    for name in ("push", "register-model", "promote"):
        assert not tasks[name]["cachingOptions"].get("enableCache", False)
    assert tasks["evaluate"]["cachingOptions"]["enableCache"]


def test_notify_is_an_exit_task(default: Documents) -> None:
    notice = default[0]["root"]["dag"]["tasks"]["notify"]
    assert notice["triggerPolicy"]["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED"
    assert (
        notice["inputs"]["parameters"]["status"]["taskFinalStatus"]["producerTask"]
        == "exit-handler-1"
    )


def test_features_are_extracted_in_parallel_shards_and_merged() -> None:
    pipeline, _ = compiled(
        extract_features={"weights": {"name": "FromFile", "path": "data/backbone.safetensors"}}
    )
    tasks = tasks_of(pipeline)
    count = resources.load().for_step("extract_features").shards
    shards = {name: task for name, task in tasks.items() if name.startswith("extract-features")}
    assert sorted(arguments(task)["shard"] for task in shards.values()) == [
        f"{number}/{count}" for number in range(1, count + 1)
    ]
    assert {tuple(task["dependentTasks"]) for task in shards.values()} == {
        ("fetch", "prepare-dataset")
    }
    merge = tasks[task_name(MERGE)]
    producers = {
        source["taskOutputArtifact"]["producerTask"]
        for source in merge["inputs"]["artifacts"].values()
    }
    assert producers == set(shards)
    features = tasks["train-embedding"]["inputs"]["artifacts"]["features"]["taskOutputArtifact"]
    assert features == {"producerTask": task_name(MERGE), "outputArtifactKey": "features"}
    assert merge["cachingOptions"]["enableCache"]


def test_a_collection_is_embedded_in_parallel_shards_and_merged(tmp_path: Path) -> None:
    overlay = tmp_path / "cluster.yaml"
    overlay.write_text("steps: {embed_collection: {shards: 3}}")
    text = kubeflow.compile_pipeline(VALUES, resources.load(overlays=[overlay]), REVISION)
    tasks = tasks_of(documents(text)[0])
    shards = {name: task for name, task in tasks.items() if name.startswith("embed-collection")}
    numbers = [arguments(task)["shard"] for task in shards.values()]
    assert sorted(numbers) == ["0/3", "1/3", "2/3", "3/3"]
    listing = next(name for name, task in shards.items() if arguments(task)["shard"] == "0/3")
    del shards[listing]
    for task in shards.values():
        listed = task["inputs"]["artifacts"]["listing"]["taskOutputArtifact"]
        assert listed == {"producerTask": listing, "outputArtifactKey": "collection"}
    merge = tasks["merge-collection"]
    producers = {
        source["taskOutputArtifact"]["producerTask"]
        for source in merge["inputs"]["artifacts"].values()
    }
    assert producers == set(shards)
    collection = tasks["build-index"]["inputs"]["artifacts"]["collection"]["taskOutputArtifact"]
    assert collection == {"producerTask": "merge-collection", "outputArtifactKey": "collection"}


def test_features_of_a_trained_backbone_are_extracted_by_one_step(
    default: Documents,
) -> None:
    tasks = tasks_of(default[0])
    assert [name for name in tasks if name.startswith(("extract", task_name(MERGE)))] == [
        "extract-features"
    ]
    assert "shard" not in arguments(tasks["extract-features"])


def test_training_on_several_nodes_is_a_job_of_the_kubeflow_trainer() -> None:
    pipeline, _ = compiled(nodes=4)
    tasks, job_task = tasks_of(pipeline), task_name(TRAIN_DISTRIBUTED.name)
    assert "train-embedding" not in tasks
    job = json.loads(arguments(tasks[job_task])["parameters"])[TRAIN_DISTRIBUTED.name]
    assert (job["nodes"], job["values"]) == (4, VALUES["train_embedding"])
    assert job["nodes"] == 4
    TRAIN_DISTRIBUTED.params.model_validate({"seed": 1, **job})
    for reader in ("evaluate", "export-onnx"):
        source = tasks[reader]["inputs"]["artifacts"]["embedding"]["taskOutputArtifact"]
        assert source == {"producerTask": job_task, "outputArtifactKey": "embedding"}


@pytest.mark.parametrize(
    "text",
    ["{{$}}", "{{$.inputs.parameters['seed']}}", "{{channel:task=;name=a;type=String;}}", "{{{{"],
)
def test_a_text_with_a_placeholder_of_kubeflow_stays_as_it_is(text: str) -> None:
    pipeline, _ = compiled(embed_collection={**VALUES["embed_collection"], "name": text})
    written = arguments(tasks_of(pipeline)["embed-collection"])["parameters"]
    assert "{{" not in written
    assert json.loads(written)["embed_collection"]["name"] == text
