"""Kubeflow's executor protocol: run a stage from an ExecutorInput and write its ExecutorOutput.

Both formats are defined in kfp's ``pipeline_spec.proto``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime import artifacts, parameters
from runtime.s3.uri import is_remote
from runtime.s3.user_files import download_user_files
from runtime.spec import Component, replace_values
from runtime.torchrun import is_main_process

MOUNTS = {"s3://": "/s3/", "minio://": "/minio/", "gs://": "/gcs/"}
"""Folders where Kubeflow's launcher mounts the artifacts of each scheme."""
PARAMETERS, CODE, USER_FILES = "parameters", "code", "user_files"


@dataclass(frozen=True)
class ExecutorInput:
    """Parameters and artifacts of one step.

    Attributes:
        values: argument ``parameters``, decoded: the seed and the step's section.
        arguments: all other arguments.
        inputs, outputs: directory of each artifact.
        output_file: path of the ExecutorOutput.
    """

    values: dict[str, Any]
    arguments: dict[str, Any]
    inputs: dict[str, Path]
    outputs: dict[str, Path]
    output_file: Path
    _output_artifacts: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "ExecutorInput":
        """Parse the JSON that Kubeflow puts in place of ``{{$}}``.

        Raises:
            ValueError: ``text`` is not an ExecutorInput.
        """
        try:
            message = json.loads(text)
            arguments = dict(message["inputs"]["parameterValues"])
            return cls(
                values=json.loads(arguments.pop(PARAMETERS)),
                arguments=arguments,
                inputs=_directories(message["inputs"].get("artifacts", {})),
                outputs=_directories(message["outputs"].get("artifacts", {})),
                output_file=Path(message["outputs"]["outputFile"]),
                _output_artifacts=message["outputs"].get("artifacts", {}),
            )
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"--executor-input: expected Kubeflow's JSON with 'inputs' and 'outputs', got {text!r} ({error!r}); "
                "Kubeflow and 'python -m pipelines run' set this option, do not set it by hand"
            ) from error

    def write_output(self, metadata: Mapping[str, Any]) -> None:
        """Write the ExecutorOutput: each output artifact with ``metadata`` and its hash."""
        outputs = {}
        for name, declared in self._output_artifacts.items():
            described = {**metadata, "sha256": artifacts.artifact_hash(self.outputs[name])}
            outputs[name] = {"artifacts": [{**declared["artifacts"][0], "metadata": described}]}
        self.output_file.parent.mkdir(parents=True, exist_ok=True)
        artifacts.write_json(self.output_file, {"artifacts": outputs})


def run_from_executor_input(component: Component, text: str) -> dict[str, float]:
    """Run a stage from the JSON of an ExecutorInput; return its metrics.

    Raises:
        ValueError: the code differs from the code that the pipeline was compiled from.
    """
    from runtime.stage import ROOT, run_stage  # imports mlflow, which takes seconds

    message = ExecutorInput.parse(text)
    actual = artifacts.code_hash(ROOT, component.all_code_paths)
    expected = message.arguments.pop(CODE)
    if actual != expected:
        raise ValueError(
            f"{component.name}: the pipeline was compiled from code {expected[:12]}, this is {actual[:12]}: "
            "build the image from that commit, or compile the pipeline again ('python -m pipelines compile')"
        )
    inputs, values = dict(message.inputs), message.values
    if component.has_parameters and USER_FILES in inputs:
        values = _with_fetched_files(inputs.pop(USER_FILES), values, component)
    values = download_user_files(values, component)
    params = parameters.validate(values, [component])[component.name]
    metrics = run_stage(component, params, inputs, message.outputs, message.values, message.arguments)
    if is_main_process():
        message.write_output(metrics)
    return metrics


def local_path(uri: str) -> Path:
    """Path of an artifact below the mounts of Kubeflow's launcher.

    Example:
        >>> local_path("minio://mlpipeline/v2/artifacts/dataset").as_posix()
        '/minio/mlpipeline/v2/artifacts/dataset'
    """
    for scheme, mount in MOUNTS.items():
        if uri.startswith(scheme):
            return Path(mount + uri.removeprefix(scheme))
    return Path(uri.removeprefix("file://"))


def _directories(declared: Mapping[str, Any]) -> dict[str, Path]:
    return {name: local_path(entry["artifacts"][0]["uri"]) for name, entry in declared.items()}


def _with_fetched_files(user_files: Path, values: Mapping[str, Any], component: Component) -> dict[str, Any]:
    """Return ``values`` with the user's paths below ``user_files``, where the step ``fetch`` wrote them."""
    section = values[component.name]
    paths = {
        location: str(user_files / path)
        for location, path in component.user_paths(section).items()
        if not is_remote(path)
    }
    return {**values, component.name: replace_values(section, paths)}
