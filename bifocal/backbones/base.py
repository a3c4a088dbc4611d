"""The protocol of backbones."""

from typing import Any, Protocol

from torch import Tensor, nn


class Backbone(Protocol):
    """A network with pretrained weights that its library can download."""

    network: nn.Module
    classifier_prefix: str  # first component of the names of its weights ("fc"); empty without a classifier

    def describe(self) -> dict[str, Any]:
        """Return the name of the network as ``backbone``, and its preprocessing."""

    def pretrained_state(self) -> dict[str, Tensor]:
        """Download and return the library's weights."""

    def download_url(self) -> str:
        """Return the address of the library's weights, for a download by hand."""


class DescribedBackbone:
    """A backbone that reads squares of ``size``, cut from images of ``scaled`` pixels if ``resize`` is "crop"."""

    name: str
    model_arguments: dict[str, Any]
    resize: str

    def describe(self) -> dict[str, Any]:
        preprocessing = ("size", "resize", "interpolation", "mean", "std", *(["scaled"] * (self.resize == "crop")))
        return {
            "backbone": self.name,
            "model_arguments": self.model_arguments,
            "preprocessing": {name: getattr(self, name) for name in preprocessing},
        }
