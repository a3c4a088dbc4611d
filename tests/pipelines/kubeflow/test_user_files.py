"""User files of the compiled pipeline: fetched by their fingerprint, which is in the cache key."""

import json

import pytest

from components.catalog import PIPELINES, pipeline_components
from components.cluster.steps import FINGERPRINT, MLFLOW_PAGE
from runtime import parameters
from runtime.spec import USER_PATH
from tests.pipelines.compiled import REVISION, Documents, arguments, compiled, task_name, tasks_of


def test_each_stage_fetches_its_user_files_by_their_fingerprint() -> None:
    pipeline, _ = compiled(
        prepare_dataset={"corpus": {"name": "Flickr8k", "root": "data/flickr8k"}},
        extract_features={"weights": {"name": "FromFile", "path": "data/backbone.safetensors"}},
    )
    tasks = tasks_of(pipeline)
    assert (
        pipeline["root"]["inputDefinitions"]["parameters"]["revision"]["defaultValue"] == REVISION
    )
    sources = {
        "prepare_dataset": ["data/flickr8k"],
        "extract_features": ["data/backbone.safetensors"],
    }
    assert json.loads(arguments(tasks["fingerprint"])["parameters"])["fingerprint"] == {
        "sources": sources
    }
    for stage, paths in sources.items():
        readers = [name for name in tasks if name.startswith(task_name(stage))]
        for reader in readers:
            fetch = tasks[reader]["inputs"]["artifacts"]["user_files"]["taskOutputArtifact"][
                "producerTask"
            ]
            given = arguments(tasks[fetch])
            assert json.loads(given["parameters"])["fetch"] == {"paths": paths}
            assert given["versions"]["taskOutputParameter"] == {
                "producerTask": "fingerprint",
                "outputParameterKey": stage,
            }
            # A new commit changes no argument of the step, so Kubeflow takes it from the cache.
            assert "revision" not in given
            assert tasks[fetch]["cachingOptions"]["enableCache"]
    assert "user_files" not in tasks["vectorize-captions"]["inputs"]["artifacts"]
    assert {"user_files_prepare_dataset", "user_files_extract_features"} <= set(
        tasks["push"]["inputs"]["artifacts"]
    )


def test_s3_sources_are_in_the_cache_key_by_their_fingerprint() -> None:
    pipeline, _ = compiled(
        prepare_dataset={"corpus": {"name": "Flickr8k", "root": "s3://bucket/flickr8k"}}
    )
    tasks = tasks_of(pipeline)
    assert "fetch" not in tasks
    versions = arguments(tasks["prepare-dataset"])["versions"]["taskOutputParameter"]
    assert versions == {"producerTask": "fingerprint", "outputParameterKey": "prepare_dataset"}
    assert "versions" not in arguments(tasks["vectorize-captions"])


def test_fingerprint_is_the_first_step_and_never_cached(default: Documents) -> None:
    tasks = tasks_of(default[0])
    assert "dependentTasks" not in tasks["fingerprint"]
    assert not tasks["fingerprint"]["cachingOptions"].get("enableCache", False)
    assert all(task["dependentTasks"] for name, task in tasks.items() if name != "fingerprint")


def test_fingerprint_has_an_output_for_each_stage_with_user_files() -> None:
    with_files = {
        stage.name
        for pipeline in PIPELINES
        for stage in pipeline_components(pipeline)
        for field in stage.params.model_fields.values()
        if "paths=('" in f"{field.annotation} {field.metadata}"
        or USER_PATH in f"{field.annotation} {field.metadata}"
    }
    assert with_files | {MLFLOW_PAGE} == set(FINGERPRINT.parameter_outputs)


@pytest.mark.parametrize("path", ["/data/flickr8k", "../data", "data/../../x"])
def test_a_user_path_outside_the_repository_is_an_error(path: str) -> None:
    with pytest.raises(parameters.ParameterError, match="outside the repository"):
        compiled(prepare_dataset={"corpus": {"name": "Flickr8k", "root": path}})
