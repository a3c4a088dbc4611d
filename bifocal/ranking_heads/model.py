"""A ranking head with the backbone below it."""

from torch import Tensor, nn

from bifocal.ranking_heads.backbones.base import RankingBackbone


class RankingModel(nn.Module):
    """A ranking head on stored features, or on the features of a backbone that trains with it: -> scores (B, C).

    Example:
        >>> import torch
        >>> from bifocal.ranking_heads import MLPHead
        >>> model = RankingModel(MLPHead(input_dim=4, labels=3))
        >>> model(torch.randn(2, 5, 4), torch.ones(2, 5, dtype=torch.bool)).shape
        torch.Size([2, 3])
    """

    def __init__(self, head: nn.Module, backbone: RankingBackbone | None = None) -> None:
        super().__init__()
        self.head, self.backbone = head, backbone

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        if self.backbone is not None:
            inputs, mask = self.backbone(inputs, mask)
        scores: Tensor = self.head(inputs, mask)
        return scores

    @property
    def reads_pixels(self) -> bool:
        """Whether the inputs are pixels (B, 3, H, W) in [0, 255], and not stored features."""
        return self.backbone is not None and self.backbone.reads_pixels

    def score_pixels(self, pixels: Tensor) -> Tensor:
        """Return the scores (B, C) of images of one size (B, 3, H, W), resized as in evaluation."""
        if self.backbone is None or not self.reads_pixels:
            raise TypeError("this ranking model reads stored features, not pixels")
        features = self.backbone.embed_pixels(pixels)
        scores: Tensor = self.head(features, features.new_ones(features.shape[:2]).bool())
        return scores
