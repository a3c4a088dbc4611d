"""Ranks of a split under a retrieval protocol, for models with vectors and for models that only score pairs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bifocal.evaluation.base import Subject
from bifocal.metrics import PROTOCOLS, Ranks, protocol_ranks, protocol_score_ranks, split_folds
from bifocal.metrics.retrieval.blockwise_ranks import BlockScores
from bifocal.metrics.retrieval.protocols import Fold
from bifocal.metrics.retrieval.ranks import concatenate
from bifocal.models.batch import to_device

IMAGES_PER_BLOCK = 32


@dataclass(frozen=True)
class RankedSplit:
    """Ranks of all queries by fold: (caption retrieval, image retrieval). ``reranked`` and ``corrected`` rank re-ranked
    and hubness-corrected scores; ``scores`` returns any block of the split's scores.
    """

    folds: list[Fold]
    raw: list[tuple[Ranks, Ranks]]
    reranked: list[tuple[Ranks, Ranks]]
    scores: BlockScores
    corrected: list[tuple[Ranks, Ranks]] | None = None

    def all_ranks(self) -> tuple[Ranks, Ranks]:
        """Return the raw ranks of all folds, in the order of ``rows``."""
        caption_ranks, image_ranks = zip(*self.raw, strict=True)
        return concatenate(caption_ranks), concatenate(image_ranks)

    def rows(self) -> tuple[Tensor, Tensor]:
        """Return the rows in the split of the image queries and of the caption queries."""
        return torch.cat([fold.images for fold in self.folds]), torch.cat([fold.captions for fold in self.folds])

    def image_of_query(self) -> Tensor:
        """Return, for each caption query, the index of its image among the image queries."""
        starts = [0]
        for fold in self.folds:
            starts.append(starts[-1] + len(fold.images))
        return torch.cat([fold.image_of_caption + start for fold, start in zip(self.folds, starts, strict=False)])


def rank_split(subject: Subject, protocol: str) -> RankedSplit:
    """Rank the split of ``subject`` under a protocol, a key of ``bifocal.metrics.PROTOCOLS``."""
    pairs = subject.pairs
    folds = split_folds(PROTOCOLS[protocol], pairs.image_of_caption, len(pairs.image_ids))
    scores = split_scores(subject)
    if subject.embeddings is None:
        raw, reranked = (protocol_score_ranks(folds, scores, rerank=rerank) for rerank in (False, True))
        return RankedSplit(folds, raw, reranked, scores)
    images, captions = subject.embeddings
    raw, reranked = (protocol_ranks(folds, images, captions, rerank=rerank) for rerank in (False, True))
    corrected = None
    if subject.bank is not None:
        biases = subject.bank.image_bias(images.numpy()), subject.bank.caption_bias(captions.numpy())
        by_image, by_caption = (torch.from_numpy(bias) for bias in biases)
        corrected = protocol_ranks(folds, images, captions, biases=(by_image, by_caption))
    return RankedSplit(folds, raw, reranked, scores, corrected)


def split_scores(subject: Subject) -> BlockScores:
    """Return a function from rows of images and of captions to their scores."""
    if subject.embeddings is None:
        return _pair_scores(subject)
    images, captions = subject.embeddings
    return lambda rows, columns: images[rows] @ captions[columns].T


def _pair_scores(subject: Subject) -> BlockScores:
    """Return a function that scores blocks with a grounding model; the cells of all images stay in memory."""
    model: Any = subject.model
    pairs = subject.pairs
    model.eval()
    with torch.inference_mode():
        batches = pairs.image_batches(IMAGES_PER_BLOCK)
        cells = torch.cat([model.embed_images(to_device(regions, model.device)).cpu() for regions in batches])
    cache: dict[str, Any] = {}

    def scores(rows: Tensor, columns: Tensor) -> Tensor:
        with torch.inference_mode():
            # Successive blocks share their captions: embed them once.
            if cache.get("columns") is not columns:
                captions = model.embed_captions(to_device(pairs.caption_text(columns), model.device))
                cache.update(columns=columns, captions=captions)
            blocks = (cells[some].to(model.device) for some in rows.split(IMAGES_PER_BLOCK))
            return torch.cat([model.score(block, cache["captions"]).cross.float().cpu() for block in blocks])

    return scores
