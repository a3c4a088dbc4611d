"""R-MAC, trained end to end."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize

from bifocal.backbones.state import fit_weights
from bifocal.backbones.trainable import PixelBackbone, by_size, whole_images
from bifocal.backbones.whitening import Whitening
from bifocal.features.extractors.rmac_regions import region_maxima


class RMACEncoder(nn.Module):
    """Regional maximum activations with the whitening as a layer, over the features of the kind Pixels.

    Gordo, Larlus, "Beyond instance-level image retrieval", CVPR 2017, sections 3 and 5: as ``bifocal.features.RMAC``,
    and every weight trains. The layer starts from the whitening if the artifact of the kind RMAC carries one. The
    network's batch normalisations keep their statistics: images of different shapes pass one shape at a time.

    Args:
        input_dim: 3, of pixels.
        dim: d, of the embedding; at most the channels of the backbone if it starts from a whitening.
        backbone: name of a timm model.
        scales: of the grid of regions.
        side_of_graph: pixels, of the square that an exported graph takes; the grid depends on the size, so it is fixed.
        model_arguments: more keyword arguments of ``timm.create_model``.

    Shape:
        pixels (B, 3, H, W) 0 to 255, mask (B, H, W) bool, true where there is an image -> (B, d), of unit norm.
    """

    def __init__(
        self,
        input_dim: int = 3,
        dim: int = 2048,
        backbone: str = "resnet101",
        scales: int = 2,
        side_of_graph: int = 576,
        model_arguments: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        if input_dim != 3:
            raise ValueError(f"RMACEncoder reads pixels, of 3 channels, and the features have {input_dim}: use Pixels")
        self.backbone = PixelBackbone(backbone, model_arguments)
        self.whitening = nn.Linear(self.backbone.channels, dim)
        self.scales, self.side_of_graph = scales, side_of_graph

    def forward(self, features: Tensor, mask: Tensor) -> Tensor:
        # Here, and not in train(): a stage of the training may call that of the backbone alone.
        for module in self.backbone.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return by_size(whole_images(features, mask), self.embed_pixels)

    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Images of one size (B, 3, H, W), every pixel of which counts, to (B, d)."""
        return self.aggregate(self.backbone(pixels))

    def aggregate(self, maps: Tensor) -> Tensor:
        """The backbone's maps (B, C, h, w) to (B, d)."""
        regions = normalize(region_maxima(maps, self.scales), dim=2)
        return normalize(normalize(self.whitening(regions), dim=2).sum(dim=1), dim=1)

    def initialise(self, directory: Path) -> None:
        """Start from the backbone, and the whitening if there is one, of a ``features`` artifact.

        Raises:
            FileNotFoundError: the artifact carries no weights.
            ValueError: they are of another network, or the whitening keeps fewer than d dimensions.
        """
        beside = self.backbone.initialise(directory)
        if "whitening.mean" in beside:
            learnt = Whitening(beside["whitening.mean"], beside["whitening.projection"])
            dim = self.whitening.out_features
            projection = learnt.projection[:dim]
            found = {"weight": projection, "bias": -projection @ learnt.mean}
            fit_weights(self.whitening, found, directory, head="")
