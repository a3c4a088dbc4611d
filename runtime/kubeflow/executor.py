"""Kubeflow's executor protocol, kfp's ``pipeline_spec.proto``: from an ExecutorInput to its
ExecutorOutput."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bifocal.durable import write_json
from bifocal.onnx.files import parse_json
from runtime import artifacts, identity, parameters, shared_store
from runtime.process import is_main_process
from runtime.s3.remote_files import download_user_files, source_digests
from runtime.s3.uri import is_remote
from runtime.shards import LISTING
from runtime.spec import Component, replace_values

MOUNTS = {"s3://": "/s3/", "minio://": "/minio/", "gs://": "/gcs/"}
"""Folders where Kubeflow's launcher mounts the artifacts of each scheme."""
PARAMETERS, CODE, USER_FILES, VERSIONS = "parameters", "code", "user_files", "versions"
SCORES, PAGE = "scores", "page"
"""Outputs that a pipeline may declare in addition: the metrics as system.Metrics, the HTML page as
system.HTML."""


@dataclass(frozen=True)
class ExecutorInput:
    """Parameters and artifacts of one step."""

    values: dict[str, Any]  # argument ``parameters``, decoded: the seed and the step's section
    arguments: dict[str, Any]  # all other arguments
    inputs: dict[str, Path]  # path of each artifact; ``outputs`` has all outputs of the message
    outputs: dict[str, Path]
    output_parameters: dict[str, Path]  # file of each output parameter
    output_file: Path  # path of the ExecutorOutput
    _output_artifacts: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "ExecutorInput":
        """Parse the JSON that Kubeflow puts in place of ``{{$}}``."""
        try:
            message = parse_json(text)
            arguments = dict(message["inputs"]["parameterValues"])
            return cls(
                values=parse_json(arguments.pop(PARAMETERS)),
                arguments=arguments,
                inputs=_paths(message["inputs"].get("artifacts", {})),
                outputs=_paths(message["outputs"].get("artifacts", {})),
                output_parameters={
                    name: Path(entry["outputFile"])
                    for name, entry in message["outputs"].get("parameters", {}).items()
                },
                output_file=Path(message["outputs"]["outputFile"]),
                _output_artifacts=message["outputs"].get("artifacts", {}),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                "--executor-input: expected Kubeflow's JSON with 'inputs' and 'outputs', got "
                f"{text!r} ({error!r}); Kubeflow and 'python -m pipelines run' set this "
                "option, do not set it by hand"
            ) from error

    def write_output(
        self,
        component: Component,
        metrics: Mapping[str, float],
        parameters: Mapping[str, str] | None = None,
    ) -> None:
        """Write the outputs that ``component`` declares, without others from the driver, and
        without NaN and infinity: the launcher rejects them in metrics (kubeflow/pipelines 2.17,
        launcher_v2.go:1232).
        """
        missing = sorted(
            {*component.outputs} - {*self.outputs}
            | {*component.parameter_outputs} - {*self.output_parameters}
        )
        if missing:
            raise ValueError(
                f"{component.name}: --executor-input has no output {missing[0]!r}: "
                "compile the pipeline again ('python -m pipelines compile')"
            )
        for name in component.parameter_outputs:
            self.output_parameters[name].parent.mkdir(parents=True, exist_ok=True)
            self.output_parameters[name].write_text((parameters or {})[name])
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        metadata: dict[str, dict[str, Any]] = {
            name: {**finite, "sha256": artifacts.artifact_hash(self.outputs[name])}
            for name in component.outputs
        }
        if SCORES in self.outputs:
            metadata[SCORES] = finite
        if PAGE in self.outputs and component.pages:
            metadata[PAGE] = {}
            output, _, file = component.pages[0].partition("/")
            self.outputs[PAGE].parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.outputs[output] / file, self.outputs[PAGE])
        self.output_file.parent.mkdir(parents=True, exist_ok=True)
        outputs = {
            name: {"artifacts": [{**self._output_artifacts[name]["artifacts"][0], "metadata": own}]}
            for name, own in metadata.items()
        }
        write_json(self.output_file, {"artifacts": outputs})


def run_from_executor_input(component: Component, text: str) -> dict[str, float]:
    """Run a stage from the JSON of an ExecutorInput; return its metrics."""
    from runtime.stage import Job, run_stage  # imports mlflow, which takes seconds

    message = ExecutorInput.parse(text)
    actual = identity.image_key(component)
    expected = message.arguments.pop(CODE)
    if actual != expected:
        raise ValueError(
            f"{component.name}: the pipeline was compiled from code {expected[:12]}, this is "
            f"{actual[:12]}: build the image from that commit, or compile the pipeline again "
            "('python -m pipelines compile')"
        )
    if component.has_parameters:
        message.arguments.pop(VERSIONS, None)  # only for Kubeflow's cache key
    inputs, values = dict(message.inputs), message.values
    sources = {} if LISTING in inputs else source_digests(values, component)
    if component.has_parameters and USER_FILES in inputs:
        sources[USER_FILES] = artifacts.artifact_hash(inputs[USER_FILES])
        values = _with_fetched_files(
            shared_store.resolve(inputs.pop(USER_FILES)), values, component
        )
    values = download_user_files(values, component)
    params = parameters.validate(values, [component])[component.name]
    outputs = {name: message.outputs[name] for name in component.outputs}
    result = run_stage(
        Job(component, params, inputs, outputs, message.values, message.arguments, sources)
    )
    if is_main_process():
        message.write_output(component, result.metrics, result.parameters)
    return result.metrics


def local_path(uri: str) -> Path:
    """Path of an artifact below the mounts of Kubeflow's launcher."""
    for scheme, mount in MOUNTS.items():
        if uri.startswith(scheme):
            return Path(mount + uri.removeprefix(scheme))
    return Path(uri.removeprefix("file://"))


def _paths(declared: Mapping[str, Any]) -> dict[str, Path]:
    """Return the path of each artifact: its custom path, or else the path of its URI, as the
    launcher does."""
    artifacts = {name: entry["artifacts"][0] for name, entry in declared.items()}
    return {
        name: Path(entry.get("customPath") or local_path(entry["uri"]))
        for name, entry in artifacts.items()
    }


def _with_fetched_files(
    user_files: Path, values: Mapping[str, Any], component: Component
) -> dict[str, Any]:
    """Return ``values`` with the user's paths below ``user_files``, where the step ``fetch`` wrote
    them."""
    section = values[component.name]
    paths = {
        location: str(user_files / path)
        for location, path in component.user_paths(section).items()
        if not is_remote(path)
    }
    return {**values, component.name: replace_values(section, paths)}
