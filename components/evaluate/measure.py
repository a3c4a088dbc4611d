"""Ranks of a split under a protocol, of a model with vectors or of one that only scores pairs."""

from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from bifocal.batch import ImageCaptionPairs, to_device
from bifocal.embedding import embed, is_dual_encoder
from bifocal.metrics import PROTOCOLS, Ranks, protocol_ranks, protocol_score_ranks, split_folds
from bifocal.metrics.retrieval.blockwise_ranks import BlockScores
from bifocal.metrics.retrieval.protocols import Fold
from bifocal.metrics.retrieval.ranks import joined

IMAGES = 32


@dataclass(frozen=True)
class Measured:
    """What is known of a model on a split.

    Attributes:
        folds: of the protocol.
        plain, reranked: ranks of each fold, both directions.
        scores: any block of the split's scores.
        images, captions: embeddings of the split; None of a model that has none.
    """

    folds: list[Fold]
    plain: list[tuple[Ranks, Ranks]]
    reranked: list[tuple[Ranks, Ranks]]
    scores: BlockScores
    images: Tensor | None = None
    captions: Tensor | None = None

    def all_ranks(self) -> tuple[Ranks, Ranks]:
        """The queries of all folds, in the order of ``rows``."""
        by_captions, by_images = zip(*self.plain, strict=True)
        return joined(by_captions), joined(by_images)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Rows in the split of the image queries and of the caption queries."""
        return torch.cat([fold.images for fold in self.folds]), torch.cat([fold.captions for fold in self.folds])

    def image_of_query(self) -> Tensor:
        """For each caption query, its image's place among the image queries."""
        starts = [0]
        for fold in self.folds:
            starts.append(starts[-1] + len(fold.images))
        return torch.cat([fold.image_of_caption + start for fold, start in zip(self.folds, starts, strict=False)])


def measure(model: Any, pairs: ImageCaptionPairs, caption_ids: ArrayLike, protocol: str) -> Measured:
    """Rank the split of ``pairs``.

    Args:
        caption_ids: of the captions of ``pairs``, in order.
        protocol: of ``bifocal.metrics.PROTOCOLS``.

    Raises:
        ValueError: the split is not what the protocol is for.
    """
    folds = split_folds(PROTOCOLS[protocol], pairs.image_of_caption, len(pairs.image_ids))
    if is_dual_encoder(model):
        images, captions = embed(model, pairs)
        return Measured(
            folds,
            protocol_ranks(folds, images, captions),
            protocol_ranks(folds, images, captions, rerank=True),
            lambda rows, columns: images[rows] @ captions[columns].T,
            images,
            captions,
        )
    scores = _pair_scores(model, pairs, caption_ids)
    return Measured(
        folds, protocol_score_ranks(folds, scores), protocol_score_ranks(folds, scores, rerank=True), scores
    )


def _pair_scores(model: Any, pairs: ImageCaptionPairs, caption_ids: ArrayLike) -> BlockScores:
    """Blocks of scores of a grounding model, which scores cells against words; all cells stand in memory."""
    text_rows = pairs.text.rows(caption_ids)
    model.eval()
    with torch.inference_mode():
        cells = torch.cat(
            [model.embed_images(to_device(regions, model.device)).cpu() for regions in pairs.image_batches(IMAGES)]
        )
    embedded: dict[str, Any] = {}

    def scores(rows: Tensor, columns: Tensor) -> Tensor:
        with torch.inference_mode():
            # One block of captions meets all images: embed it once.
            if embedded.get("columns") is not columns:
                text = to_device(pairs.text.gather(text_rows[columns.numpy()]), model.device)
                embedded.update(columns=columns, captions=model.embed_captions(text))
            parts = (cells[part].to(model.device) for part in rows.split(IMAGES))
            return torch.cat([model.score(part, embedded["captions"]).cross.float().cpu() for part in parts])

    return scores
