"""The protocol of backbones."""

from typing import Any, Protocol

from torch import Tensor, nn


class Backbone(Protocol):
    """A network with pretrained weights that its library can download.

    Attributes:
        network: holds the weights, under the names that its library uses.
        classifier_prefix: first component of the names of the classifier's weights ("fc"). A weights file may hold
            them although ``network`` has no classifier. Empty if there is none.
    """

    network: nn.Module
    classifier_prefix: str

    def describe(self) -> dict[str, Any]:
        """Return the name of the network as ``backbone``, and its preprocessing."""

    def pretrained_state(self) -> dict[str, Tensor]:
        """Download and return the library's weights."""

    def download_url(self) -> str:
        """Return the address of the library's weights, for a download by hand."""
