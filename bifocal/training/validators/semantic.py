"""Validation of semantic retrieval: do images find the images that mean the same?"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bifocal.embedding import dual_encoder, embed
from bifocal.metrics import area_under, choose_queries, retrieval_ranks, semantic_curves
from bifocal.training.batches.mined_triplets import SemanticPairs
from bifocal.training.validators.recall import recalls

RS = (8, 16, 32, 64, 128)


@dataclass(frozen=True)
class SemanticValidator:
    """NDCG of images found by images, which chooses the epoch, beside the recalls of captions and images.

    Gordo and Larlus, "Beyond instance-level image retrieval", CVPR 2017, section 6.1: at most 1,000 queries, the
    relevance of an image being the dot product of the tf-idf texts. ``ndcg`` is the area under NDCG@R of R = 8 to 128,
    in percent.
    A model that was trained without texts (the paper's "V") has recalls of chance, and is chosen all the same.

    Raises:
        TypeError: the model has no single vector for an image.
    """

    pairs: SemanticPairs
    monitor: str = "ndcg"

    def __call__(self, model: nn.Module) -> dict[str, float]:
        images, captions = embed(dual_encoder(model), self.pairs.pairs)
        found = recalls(retrieval_ranks(images, captions, self.pairs.pairs.image_of_caption))
        queries, texts = choose_queries(len(images), seed=0), self._texts()
        rs = [r for r in RS if r < len(images)] or [len(images) - 1]
        curve, _ = semantic_curves(images[queries] @ images.T, texts[queries] @ texts.T, queries, rs)
        return found | {"ndcg": 100 * area_under(curve)}

    def _texts(self) -> Tensor:
        return self.pairs.texts(torch.arange(len(self.pairs))).values
