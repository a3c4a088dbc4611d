"""InfoNCE loss: softmax cross-entropy of each match against the negatives of the batch."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from bifocal.scores import Scores, check_matches, is_diagonal, mean_of_matches

MAX_SCALE = 100.0
"""Largest factor of the scores, 1 / temperature, that is learned."""


class InfoNCELoss(nn.Module):
    """Cross-entropy of each match against all negatives of the batch, in both directions.

    van den Oord, Li, Vinyals, "Representation learning with contrastive predictive coding", 2018,
    eq. (4), where f is exp(cosine / temperature); symmetric as in Radford et al., "CLIP", ICML
    2021. Other captions of the same image are no negatives: a match (n, m) competes with the
    captions that do not match image n, and with the images that do not match caption m.

    Args:
        temperature: tau, in units of the score (0.07 in CLIP); its initial value if it is learned.
        learn_temperature: learn log(1 / tau), a parameter of the loss; 1 / tau is at most 100
            (CLIP, section 2.5).
        label_smoothing: epsilon of Szegedy et al., "Rethinking the inception architecture", CVPR
            2016, section 7: this part of the target is spread evenly over a match and its
            negatives. Other captions of the image are neither.

    Shape:
        scores.cross (N, M), matches (N, M) bool -> scalar, the mean over the matches of the sum of
        both directions.

    Raises:
        ValueError: the shapes differ, the temperature is not positive, or ``label_smoothing`` is
            not in [0, 1).

    Example:
        >>> loss = InfoNCELoss(temperature=1.0)
        >>> round(
        ...     loss(Scores(torch.zeros(2, 2)), torch.eye(2, dtype=torch.bool)).item(), 4
        ... )  # 2 log 2
        1.3863
    """

    def __init__(
        self,
        temperature: float = 0.07,
        learn_temperature: bool = False,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        arguments = {"temperature": temperature, "learn_temperature": learn_temperature}
        for problem in self.conflicts(arguments | {"label_smoothing": label_smoothing}):
            raise ValueError(problem)
        self.temperature, self.label_smoothing = temperature, label_smoothing
        self.log_scale = (
            nn.Parameter(torch.tensor(-math.log(temperature))) if learn_temperature else None
        )

    @classmethod
    def conflicts(cls, arguments: Mapping[str, Any]) -> Iterator[str]:
        temperature, smoothing = (
            arguments.get("temperature", 0.07),
            arguments.get("label_smoothing", 0.0),
        )
        lowest = 1 / MAX_SCALE if arguments.get("learn_temperature") else 0
        if temperature <= 0 or temperature < lowest:
            least = f"at least {lowest:g}, as it is learned" if lowest else "a positive number"
            yield f"temperature is {temperature}: expected {least}"
        if not 0 <= smoothing < 1:
            yield f"label_smoothing is {smoothing}: expected a number from 0 to below 1"

    def forward(self, scores: Scores, matches: Tensor) -> Tensor:
        if self.log_scale is None:
            return info_nce(scores.cross, matches, self.temperature, self.label_smoothing)
        with torch.no_grad():
            # Clip the parameter and not the scale: a scale beyond the limit would have no gradient
            # back.
            self.log_scale.clamp_(max=math.log(MAX_SCALE))
        return info_nce(scores.cross, matches, 1 / self.log_scale.exp(), self.label_smoothing)

    def learned_values(self) -> dict[str, float]:
        """Return the temperature, if it is learned, for the history of a training."""
        return (
            {}
            if self.log_scale is None
            else {"temperature": max(math.exp(-self.log_scale.item()), 1 / MAX_SCALE)}
        )


def info_nce(
    scores: Tensor, matches: Tensor, temperature: float | Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Return the value of ``InfoNCELoss`` for a score matrix (N, M)."""
    check_matches(scores, matches)
    logits = scores / temperature
    image, caption = matches.nonzero(as_tuple=True)
    if is_diagonal(matches, image, caption):  # the same values, faster
        by_image = cross_entropy(logits, caption, label_smoothing=label_smoothing)
        return by_image + cross_entropy(logits.T, image, label_smoothing=label_smoothing)
    costs = _costs(logits, matches, image, caption, label_smoothing)
    costs = costs + _costs(logits.T, matches.T, caption, image, label_smoothing)
    return mean_of_matches(costs)


def _costs(
    logits: Tensor, matches: Tensor, query: Tensor, candidate: Tensor, smoothing: float
) -> Tensor:
    """Return the cost of each match (``query``, ``candidate``) against the candidates that do not
    match the query."""
    # The mask is finite, so that the loss and its gradient are 0 where a match has no negatives.
    negatives = logits.masked_fill(matches, torch.finfo(logits.dtype).min / 2)
    positives = logits[query, candidate]
    # -log(e^p / (e^p + sum of e^n)) is softplus(log(sum of e^n) - p).
    costs = softplus(negatives.logsumexp(dim=1)[query] - positives)
    if not smoothing:
        return costs
    # With the target distribution q, the cross-entropy is: cost of the match + sum of q_c (p - c)
    # over candidates c.
    others, count = logits.masked_fill(matches, 0).sum(dim=1), (~matches).sum(dim=1)
    smoothed: Tensor = costs + smoothing * (count[query] * positives - others[query]) / (
        count[query] + 1
    )
    return smoothed
