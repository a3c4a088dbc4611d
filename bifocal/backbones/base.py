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
