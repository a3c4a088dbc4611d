"""Kubeflow's executor protocol: parsed inputs, written outputs, errors."""

import json
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from runtime import artifacts
from runtime.kubeflow.executor import ExecutorInput, run_from_executor_input
from runtime.spec import Component, Params

TOY = Component(name="toy", summary="", image="cpu", params=Params, outputs=("toys",))


def message(folder: Path) -> dict[str, Any]:
    return {
        "inputs": {
            "parameterValues": {
                "parameters": '{"seed":1,"toy":{"rate":0.5}}',
                "code": "abc",
                "shard": "1/2",
            },
            "artifacts": {
                "dataset": {"artifacts": [{"name": "dataset", "uri": "s3://bucket/dataset"}]}
            },
        },
        "outputs": {
            "artifacts": {
                "toys": {
                    "artifacts": [{"name": "toys", "uri": str(folder / "toys"), "metadata": {}}]
                }
            },
            "outputFile": str(folder / "out" / "executor_output.json"),
        },
    }


def test_executor_input_has_values_arguments_and_directories(tmp_path: Path) -> None:
    parsed = ExecutorInput.parse(json.dumps(message(tmp_path)))
    assert parsed.values == {"seed": 1, "toy": {"rate": 0.5}}
    assert parsed.arguments == {"code": "abc", "shard": "1/2"}
    assert parsed.inputs == {"dataset": Path("/s3/bucket/dataset")}
    assert parsed.outputs == {"toys": tmp_path / "toys"}


def write_toys(folder: Path, **files: str) -> None:
    partial = artifacts.open_partial(folder / "toys", {})
    for name, text in files.items():
        (partial / name).write_text(text)
    artifacts.commit(partial, folder / "toys", {})


def written(parsed: ExecutorInput) -> dict[str, Any]:
    """Return the ExecutorOutput as the launcher reads it, by the JSON rules of protobuf."""
    text = parsed.output_file.read_text()
    output = json_format.Parse(text, pipeline_spec_pb2.ExecutorOutput())
    return {
        name: entry["artifacts"][0]
        for name, entry in json_format.MessageToDict(output)["artifacts"].items()
    }


def test_executor_output_has_metrics_and_hash_of_each_artifact(tmp_path: Path) -> None:
    write_toys(tmp_path)
    parsed = ExecutorInput.parse(json.dumps(message(tmp_path)))
    parsed.write_output(TOY, {"count": 1.0})
    toys = written(parsed)["toys"]
    assert toys["uri"] == str(tmp_path / "toys")
    assert toys["metadata"] == {"count": 1.0, "sha256": artifacts.artifact_hash(tmp_path / "toys")}


def test_outputs_that_the_component_does_not_declare_are_ignored(tmp_path: Path) -> None:
    write_toys(tmp_path)
    given = message(tmp_path)
    logs = {
        "name": "executor-logs",
        "uri": "minio://mlpipeline/run/executor-logs-0",
        "metadata": {},
    }
    given["outputs"]["artifacts"]["executor-logs"] = {"artifacts": [logs]}
    parsed = ExecutorInput.parse(json.dumps(given))
    parsed.write_output(TOY, {})
    assert set(written(parsed)) == {"toys"}


def test_metrics_that_are_no_finite_numbers_are_left_out(tmp_path: Path) -> None:
    write_toys(tmp_path)
    parsed = ExecutorInput.parse(json.dumps(message(tmp_path)))
    parsed.write_output(TOY, {"count": 1.0, "mean": nan, "ratio": inf})
    assert set(written(parsed)["toys"]["metadata"]) == {"count", "sha256"}


def test_scores_and_page_are_written_where_the_pipeline_declares_them(tmp_path: Path) -> None:
    write_toys(tmp_path, **{"index.html": "<p>toys</p>"})
    given = message(tmp_path)
    for name, title in (("scores", "system.Metrics"), ("page", "system.HTML")):
        entry = {"name": name, "uri": str(tmp_path / "task" / name), "type": {"schemaTitle": title}}
        given["outputs"]["artifacts"][name] = {"artifacts": [entry]}
    parsed = ExecutorInput.parse(json.dumps(given))
    parsed.write_output(replace(TOY, pages=("toys/index.html",)), {"recall": 0.5, "mean": nan})
    assert written(parsed)["scores"]["metadata"] == {"recall": 0.5}
    assert written(parsed)["page"]["type"] == {"schemaTitle": "system.HTML"}
    assert (tmp_path / "task" / "page").read_text() == "<p>toys</p>"


def test_output_parameters_are_text_files(tmp_path: Path) -> None:
    write_toys(tmp_path)
    given = message(tmp_path)
    given["outputs"]["parameters"] = {"digest": {"outputFile": str(tmp_path / "kfp" / "digest")}}
    parsed = ExecutorInput.parse(json.dumps(given))
    parsed.write_output(replace(TOY, parameter_outputs=("digest",)), {}, {"digest": "abc"})
    assert (tmp_path / "kfp" / "digest").read_text() == "abc"


def test_a_declared_output_that_the_message_lacks_is_an_error(tmp_path: Path) -> None:
    parsed = ExecutorInput.parse(json.dumps(message(tmp_path)))
    with pytest.raises(
        ValueError, match="toy: --executor-input has no output 'games': compile the pipeline again"
    ):
        parsed.write_output(replace(TOY, outputs=("games",)), {})


@pytest.mark.parametrize(
    "text", ["no JSON", "{}", '{"inputs": {"parameterValues": {}}, "outputs": {}}', "[1]"]
)
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected Kubeflow's JSON with 'inputs' and 'outputs'"):
        ExecutorInput.parse(text)


def test_other_code_than_the_compiled_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"toy: the pipeline was compiled from code abc, this is .*: build the image",
    ):
        run_from_executor_input(TOY, json.dumps(message(tmp_path)))
