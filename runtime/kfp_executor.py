"""Kubeflow's message to a step: which artifacts are where, and what came of the step.

The formats are ExecutorInput and ExecutorOutput of kfp's ``pipeline_spec.proto``.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime import artifacts as artifact
from runtime import parameters
from runtime.s3 import storage
from runtime.spec import Component, replace_values

# Where Kubeflow's launcher puts what it fetched, and looks for what it is to store.
MOUNTS = {"s3://": "/s3/", "minio://": "/minio/", "gs://": "/gcs/"}
PARAMETERS, CODE, USER_FILES = "parameters", "code", "user_files"


@dataclass(frozen=True)
class Message:
    """One ExecutorInput.

    Attributes:
        values: the canonical JSON of the argument ``parameters``: the seed and the step's own section.
        arguments: every other argument.
        inputs, outputs: folder of each artifact.
        output_file: where the ExecutorOutput is expected.
    """

    values: dict[str, Any]
    arguments: dict[str, Any]
    inputs: dict[str, Path]
    outputs: dict[str, Path]
    output_file: Path
    _outputs: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> "Message":
        """Read the JSON that Kubeflow puts in the place of ``{{$}}``.

        Raises:
            ValueError: it is no such message.
        """
        try:
            message = json.loads(text)
            arguments = dict(message["inputs"]["parameterValues"])
            return cls(
                values=json.loads(arguments.pop(PARAMETERS)),
                arguments=arguments,
                inputs=_folders(message["inputs"].get("artifacts", {})),
                outputs=_folders(message["outputs"].get("artifacts", {})),
                output_file=Path(message["outputs"]["outputFile"]),
                _outputs=message["outputs"].get("artifacts", {}),
            )
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"--executor-input: expected Kubeflow's message with 'inputs' and 'outputs', got {text!r} ({error!r}); "
                "Kubeflow or 'python -m pipelines run' writes it, nobody by hand"
            ) from error

    def answer(self, metadata: Mapping[str, Any]) -> None:
        """Write the ExecutorOutput: each output with ``metadata`` and its hash."""
        found = {}
        for name, listed in self._outputs.items():
            described = {**metadata, "sha256": artifact.artifact_hash(self.outputs[name])}
            found[name] = {"artifacts": [{**listed["artifacts"][0], "metadata": described}]}
        self.output_file.parent.mkdir(parents=True, exist_ok=True)
        artifact.write_json(self.output_file, {"artifacts": found})


def execute(component: Component, text: str) -> dict[str, float]:
    """Run a stage as ``text``, Kubeflow's message, says.

    Raises:
        ValueError: the code is not that which the pipeline was compiled from.
    """
    from runtime.stage import ROOT, run_stage  # what it imports takes seconds

    message = Message.parse(text)
    found = artifact.code_hash(ROOT, component.all_code_paths)
    expected = message.arguments.pop(CODE)
    if found != expected:
        raise ValueError(
            f"{component.name}: the pipeline was compiled from code {expected[:12]}, this is {found[:12]}: "
            "build the image from that commit, or compile the pipeline again ('python -m pipelines compile')"
        )
    inputs = dict(message.inputs)
    values = message.values
    if component.has_parameters and USER_FILES in inputs:
        values = _found_in(inputs.pop(USER_FILES), values, component)
    values = storage.localized(values, component)
    params = parameters.validate(values, [component])[component.name]
    figures = run_stage(component, params, inputs, message.outputs, message.values, message.arguments)
    if os.environ.get("RANK", "0") == "0":  # of several processes by torchrun, the one that writes
        message.answer(figures)
    return figures


def _folders(artifacts: Mapping[str, Any]) -> dict[str, Path]:
    return {name: local_path(listed["artifacts"][0]["uri"]) for name, listed in artifacts.items()}


def local_path(uri: str) -> Path:
    """Where an artifact is on this machine.

    >>> local_path("minio://mlpipeline/v2/artifacts/dataset").as_posix()
    '/minio/mlpipeline/v2/artifacts/dataset'
    """
    for scheme, mount in MOUNTS.items():
        if uri.startswith(scheme):
            return Path(mount + uri.removeprefix(scheme))
    return Path(uri.removeprefix("file://"))


def _found_in(user_files: Path, values: Mapping[str, Any], component: Component) -> dict[str, Any]:
    """``values`` with the user's paths below ``user_files``, where the step ``fetch`` put them."""
    section = values[component.name]
    paths = {
        location: str(user_files / path)
        for location, path in component.user_paths(section).items()
        if not storage.is_remote(path)
    }
    return {**values, component.name: replace_values(section, paths)}
