"""Detectors of torchvision."""

from typing import Any, cast

from torch import Tensor, nn

from bifocal.registry import suggest


class Detector:
    """A frozen detector of torchvision with random weights; ``two_stage`` if its head classifies proposed boxes."""

    classifier_prefix = ""

    def __init__(self, name: str, model_arguments: dict[str, Any]) -> None:
        # imported here: it takes seconds, and a process that only reads a store does not need it
        from torchvision.models import detection, get_model, list_models

        detectors = list_models(module=detection)
        if name not in detectors:
            raise ValueError(f"torchvision has no detector {name!r}; {suggest(name, detectors)}")
        self.name, self.model_arguments = name, model_arguments
        self.network: nn.Module = get_model(name, weights=None, weights_backbone=None, **model_arguments)
        self.network = self.network.eval().requires_grad_(False)
        self.two_stage = hasattr(self.network, "roi_heads")

    def describe(self) -> dict[str, Any]:
        return {"backbone": self.name, "model_arguments": self.model_arguments}

    def pretrained_state(self) -> dict[str, Tensor]:
        """Download and return torchvision's weights of this detector."""
        from torchvision.models import get_model

        model = get_model(self.name, weights="DEFAULT", **self.model_arguments)
        return cast(dict[str, Tensor], model.state_dict())

    def download_url(self) -> str:
        """Return the address of the file that torchvision downloads."""
        from torchvision.models import get_model_weights

        return cast(str, get_model_weights(self.name).DEFAULT.url)
