"""How do losses compare with open_clip, pytorch-metric-learning and the code of VSE++?

    make peers

Forward and backward from embeddings of 256 dimensions, one caption per image, on one core. The
values are compared
first: ours is the sum of both directions where the packages have the mean.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from open_clip.loss import ClipLoss
from pytorch_metric_learning.losses import NTXentLoss
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.common import Report
from benchmarks.peers.compare import compare, write
from bifocal.losses import HardestTripletLoss, InfoNCELoss, TripletLoss
from bifocal.scores import Scores

BATCHES, DIM, TEMPERATURE, MARGIN = (128, 256, 1024, 4096), 256, 0.07, 0.2
SMALL = 256
"""Largest batch of pytorch-metric-learning, which takes a second for it."""


def embeddings(batch: int) -> list[Tensor]:
    """Return images and captions of unit norm, (batch, DIM) each."""
    generator = torch.Generator().manual_seed(0)
    return [
        normalize(torch.randn(batch, DIM, generator=generator), dim=1).requires_grad_()
        for _ in range(2)
    ]


def compare_batch(report: Report, batch: int) -> None:
    """Compare InfoNCE of a batch."""
    ours, clip, ntxent = InfoNCELoss(TEMPERATURE), ClipLoss(), NTXentLoss(TEMPERATURE)
    images, captions = embeddings(batch)
    matches, labels, others = (
        torch.eye(batch, dtype=torch.bool),
        torch.arange(batch),
        torch.arange(batch),
    )

    def info_nce() -> Tensor:
        return cast(Tensor, ours(Scores(images @ captions.T), matches))

    def open_clip() -> Tensor:
        return cast(Tensor, 2 * clip(images, captions, torch.tensor(1 / TEMPERATURE)))

    def metric_learning() -> Tensor:
        both = ((images, captions), (captions, images))
        return cast(
            Tensor,
            sum(ntxent(one, labels, ref_emb=other, ref_labels=others) for one, other in both),
        )

    def by_hand() -> Tensor:
        logits = images @ captions.T / TEMPERATURE
        return cross_entropy(logits, labels) + cross_entropy(logits.T, labels)

    peers = {"open_clip_torch": open_clip, "torch cross_entropy (floor)": by_hand}
    if batch <= SMALL:
        peers["pytorch-metric-learning"] = metric_learning
    for name, theirs in peers.items():
        torch.testing.assert_close(theirs(), info_nce(), rtol=1e-4, atol=1e-4)
        work = f"InfoNCE, batch {batch:,}"
        compare(report, work, name, partial(_step, info_nce), partial(_step, theirs))


def compare_hinges(report: Report, batch: int, hardest: bool) -> None:
    """Compare the sum of hinges, or the hardest of each row and column, with the loss of the
    authors of VSE++."""
    images, captions = embeddings(batch)
    matches = torch.eye(batch, dtype=torch.bool)
    loss = HardestTripletLoss(MARGIN) if hardest else TripletLoss(MARGIN, negatives="all")

    def ours() -> Tensor:
        return cast(Tensor, loss(Scores(images @ captions.T), matches))

    def published() -> Tensor:
        scores = images.mm(captions.t())
        diagonal = scores.diag().view(batch, 1)
        by_caption = (
            (MARGIN + scores - diagonal.expand_as(scores)).clamp(min=0).masked_fill(matches, 0)
        )
        by_image = (
            (MARGIN + scores - diagonal.t().expand_as(scores)).clamp(min=0).masked_fill(matches, 0)
        )
        if hardest:
            by_caption, by_image = by_caption.max(1)[0], by_image.max(0)[0]
        return (by_caption.sum() + by_image.sum()) / batch

    torch.testing.assert_close(published(), ours(), rtol=1e-4, atol=1e-4)
    work = f"{'hardest triplets' if hardest else 'sum of hinges'}, batch {batch:,}"
    compare(report, work, "torch code of VSE++", partial(_step, ours), partial(_step, published))


def _step(loss: Callable[[], Tensor]) -> None:
    loss().backward()


def main() -> None:
    """Compare the losses."""
    torch.set_num_threads(1)
    report = Report("peers.losses")
    for batch in BATCHES:
        compare_batch(report, batch)
        for hardest in (True, False):
            compare_hinges(report, batch, hardest)
    write(report)


if __name__ == "__main__":
    main()
