"""Kubeflow's executor protocol: parsed inputs, written outputs, errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime import artifacts
from runtime.kfp_executor import ExecutorInput, run_from_executor_input
from runtime.spec import Component, Params


def message(folder: Path) -> dict[str, Any]:
    return {
        "inputs": {
            "parameterValues": {"parameters": '{"seed":1,"toy":{"rate":0.5}}', "code": "abc", "shard": "1/2"},
            "artifacts": {"dataset": {"artifacts": [{"name": "dataset", "uri": "s3://bucket/dataset"}]}},
        },
        "outputs": {
            "artifacts": {"toys": {"artifacts": [{"name": "toys", "uri": str(folder / "toys"), "metadata": {}}]}},
            "outputFile": str(folder / "out" / "executor_output.json"),
        },
    }


def test_executor_input_has_values_arguments_and_directories(tmp_path: Path) -> None:
    parsed = ExecutorInput.parse(json.dumps(message(tmp_path)))
    assert parsed.values == {"seed": 1, "toy": {"rate": 0.5}}
    assert parsed.arguments == {"code": "abc", "shard": "1/2"}
    assert parsed.inputs == {"dataset": Path("/s3/bucket/dataset")}
    assert parsed.outputs == {"toys": tmp_path / "toys"}


def test_executor_output_has_metrics_and_hash_of_each_artifact(tmp_path: Path) -> None:
    partial = artifacts.open_partial(tmp_path / "toys", {})
    (partial / "toy.txt").write_text("toy")
    artifacts.commit(partial, tmp_path / "toys", {})
    parsed = ExecutorInput.parse(json.dumps(message(tmp_path)))
    parsed.write_output({"count": 1.0})
    (written,) = json.loads(parsed.output_file.read_text())["artifacts"]["toys"]["artifacts"]
    assert written["uri"] == str(tmp_path / "toys")
    assert written["metadata"] == {"count": 1.0, "sha256": artifacts.artifact_hash(tmp_path / "toys")}


@pytest.mark.parametrize("text", ["no JSON", "{}", '{"inputs": {"parameterValues": {}}, "outputs": {}}', "[1]"])
def test_other_text_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="expected Kubeflow's JSON with 'inputs' and 'outputs'"):
        ExecutorInput.parse(text)


def test_other_code_than_the_compiled_is_an_error(tmp_path: Path) -> None:
    toy = Component(name="toy", summary="", image="cpu", params=Params, outputs=("toys",))
    with pytest.raises(ValueError, match=r"toy: the pipeline was compiled from code abc, this is .*: build the image"):
        run_from_executor_input(toy, json.dumps(message(tmp_path)))
