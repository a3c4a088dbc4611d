"""``runtime.kubeflow.executor`` answers a message as ``kfp.dsl.executor`` does, though it imports
no kfp."""

import copy
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import json_format
from kfp import dsl
from kfp.dsl.executor import Executor
from kfp.pipeline_spec import pipeline_spec_pb2

from runtime import artifacts
from runtime.kubeflow.executor import ExecutorInput
from runtime.spec import Component, Params

TOY = Component(
    name="toy",
    summary="",
    image="cpu",
    params=Params,
    outputs=("toys",),
    parameter_outputs=("digest",),
    pages=("toys/index.html",),
)
METRICS = {"recall": 0.5, "images": 3.0}
DIGEST = "d1"


class Outputs(NamedTuple):
    digest: str


def message(folder: Path) -> dict[str, Any]:
    """Return the ExecutorInput of a task with every kind of output that the project has."""
    titles = {"toys": "Dataset", "scores": "Metrics", "page": "HTML", "executor-logs": "Artifact"}
    outputs = {
        name: {
            "artifacts": [
                {
                    "name": name,
                    "uri": str(folder / name),
                    "type": {"schemaTitle": f"system.{title}"},
                }
            ]
        }
        for name, title in titles.items()
    }
    dataset = {
        "name": "7",
        "uri": "minio://mlpipeline/v2/artifacts/toys/run/make/dataset",
        "metadata": {"count": 1},
    }
    parsed = {
        "inputs": {
            "parameterValues": {"parameters": '{"seed":1,"toy":{}}', "code": "abc", "shard": "1/2"},
            "artifacts": {"dataset": {"artifacts": [dataset]}},
        },
        "outputs": {
            "artifacts": outputs,
            "parameters": {"digest": {"outputFile": str(folder / "parameters" / "digest")}},
            "outputFile": str(folder / "task" / "output_metadata.json"),
        },
    }
    return json_format.MessageToDict(
        json_format.ParseDict(parsed, pipeline_spec_pb2.ExecutorInput())
    )


def answer_of_kfp(given: dict[str, Any], sha256: str) -> dict[str, Any]:
    seen: dict[str, str] = {}

    def toy(
        parameters: str,
        code: str,
        shard: str,
        dataset: dsl.Input[dsl.Dataset],
        toys: dsl.Output[dsl.Dataset],
        scores: dsl.Output[dsl.Metrics],
        page: dsl.Output[dsl.HTML],
    ) -> Outputs:
        seen.update(
            parameters=parameters, code=code, shard=shard, dataset=dataset.path, toys=toys.path
        )
        toys.metadata.update(METRICS, sha256=sha256)
        for name, value in METRICS.items():
            scores.log_metric(name, value)
        Path(page.path).write_text("<p>")
        return Outputs(DIGEST)

    Executor(copy.deepcopy(given), toy).execute()
    return {"seen": seen, **collected(given)}


def answer_of_project(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    parsed = ExecutorInput.parse(json.dumps(given))
    partial = artifacts.open_partial(parsed.outputs["toys"], {})
    (partial / "index.html").write_text("<p>")
    artifacts.commit(partial, parsed.outputs["toys"], {})
    parsed.write_output(TOY, METRICS, {"digest": DIGEST})
    seen = {
        "parameters": json.dumps(parsed.values, separators=(",", ":")),
        **parsed.arguments,
        "dataset": str(parsed.inputs["dataset"]),
        "toys": str(parsed.outputs["toys"]),
    }
    return {"seen": seen, **collected(given)}


def collected(given: dict[str, Any]) -> dict[str, Any]:
    """Return what the launcher takes from the answer (launcher_v2.go:484-515, 1188-1206)."""
    text = Path(given["outputs"]["outputFile"]).read_text()
    output = json_format.MessageToDict(json_format.Parse(text, pipeline_spec_pb2.ExecutorOutput()))
    parameters = output.get("parameterValues", {})
    for name, entry in given["outputs"]["parameters"].items():
        if name not in parameters:
            parameters[name] = Path(entry["outputFile"]).read_text()
    # The launcher ignores an answer for the log (launcher_v2.go:804).
    entries = {
        name: entry["artifacts"][0]
        for name, entry in output["artifacts"].items()
        if name != "executor-logs"
    }
    merged = {name: (entry["uri"], entry.get("metadata", {})) for name, entry in entries.items()}
    return {"artifacts": merged, "parameters": parameters}


def test_answers_are_equal(tmp_path: Path) -> None:
    given = message(tmp_path)
    ours = answer_of_project(given, tmp_path)
    assert (tmp_path / "page").read_text() == "<p>"
    sha256 = artifacts.artifact_hash(tmp_path / "toys")
    theirs = answer_of_kfp(given, sha256)
    assert set(ours["artifacts"]) == {"toys", "scores", "page"}
    assert ours == theirs


@pytest.mark.parametrize("uri", ["minio://bucket/a/b", "s3://bucket/a/b", "gs://bucket/a/b"])
def test_artifacts_are_at_the_paths_of_kfp(uri: str) -> None:
    given = {
        "inputs": {
            "parameterValues": {"parameters": "{}"},
            "artifacts": {"a": {"artifacts": [{"uri": uri}]}},
        },
        "outputs": {"outputFile": "/tmp/output_metadata.json"},
    }
    assert str(ExecutorInput.parse(json.dumps(given)).inputs["a"]) == dsl.Artifact(uri=uri).path
