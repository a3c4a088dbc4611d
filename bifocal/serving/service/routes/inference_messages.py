"""Messages of the Open Inference Protocol, which the routes under ``/v2`` read and write."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from annotated_types import Ge, MaxLen, MinLen

from bifocal.serving.service.routes.json_bodies import FailFast


@dataclass
class Tensor:
    """Description of an input or output; -1 is any size."""

    name: str
    datatype: str
    shape: list[int]


@dataclass
class ServerMetadata:
    """Name and version of the API."""

    name: str
    version: str
    extensions: list[str]


@dataclass
class ModelMetadata:
    """Inputs and outputs of the model; a version is the SHA-256 of the exported model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[Tensor]
    outputs: list[Tensor]
    parameters: dict[str, int]  # limits of a request; 0 means no limit


@dataclass
class Live:
    """Whether the process answers."""

    live: bool


@dataclass
class Ready:
    """Whether the service has a model."""

    ready: bool


@dataclass
class ModelReady:
    """Whether the model is loaded."""

    name: str
    ready: bool


@dataclass(kw_only=True)
class InferenceInput:
    """Sentences, or image files in base64.

    Attributes:
        name: "text" or "image".
        shape: [n] or [n, 1].
        datatype: "BYTES".
        data: n strings; of shape [n, 1], also n lists of one string.
    """

    name: str
    shape: Annotated[list[Annotated[int, Ge(0)]], MinLen(1), MaxLen(2)]
    datatype: str
    data: Annotated[list[str], FailFast()] | Annotated[list[Annotated[list[str], FailFast()]], FailFast()]


@dataclass(kw_only=True)
class InferenceRequest:
    """Request of the protocol with one input; other keys are ignored."""

    parameters: dict[str, Any] = field(default_factory=dict)
    id: str | None = None
    inputs: Annotated[list[InferenceInput], MinLen(1), FailFast()]
    outputs: Annotated[list[dict[str, Any]], FailFast()] = field(default_factory=list)


@dataclass
class InferenceOutput:
    """Embeddings (n, d), row by row."""

    name: str
    shape: list[int]
    datatype: str
    data: list[float]


@dataclass
class InferenceResponse:
    """Answer of the protocol, with the ``id`` of the request."""

    model_name: str
    model_version: str
    outputs: list[InferenceOutput]
    id: str | None = None
