"""Text modifiers: does a word that is added to a query image, or taken from it, bring what it says?

Gordo and Larlus, CVPR 2017, section 6 and figure 5; they show examples, the figures here are this project's.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def modified_queries(images: Tensor, texts: Tensor, weight: float) -> Tensor:
    """Query vectors: phi_q + weight * theta_t, of unit norm; a negative weight takes the concept away.

    Shape:
        images (Q, d), texts (Q, d) -> (Q, d)
    """
    return normalize(images + weight * texts, dim=1)


def modifier_precision(
    images: Tensor, queries: Tensor, texts: Tensor, shows: Tensor, *, weight: float = 1.0, r: int = 10
) -> dict[str, float]:
    """How many of the first R results show the concept, in percent, before and after a modifier.

    Args:
        images: the gallery.
        queries: row of each query in it; it is removed from its results.
        texts: embedding of each query's modifier.
        shows: whether each image of the gallery shows the concept of each query's modifier.
        weight: of the modifier: positive adds, negative takes away.

    Shape:
        images (N, d), queries (Q,), texts (Q, d), shows (Q, N) bool

    Returns:
        ``before``, ``after``: precision among the first ``r``; ``chance``: the share of the gallery that shows it;
        ``kept``: cosine of the modified results' mean image with the query image, after over before, that says whether
        the rest of the query is still there.

    Raises:
        ValueError: shapes differ, or ``r`` is beyond the gallery.
    """
    if shows.shape != (len(queries), len(images)) or texts.shape != (len(queries), images.shape[1]):
        raise ValueError(
            f"queries {tuple(queries.shape)}, texts {tuple(texts.shape)}, shows {tuple(shows.shape)}, images "
            f"{tuple(images.shape)} differ: expected (Q,), (Q, d), (Q, N) and (N, d)"
        )
    if not 1 <= r < len(images):
        raise ValueError(f"R is {r}: {len(images)} images, less the query, give 1 to {len(images) - 1} results")
    own = queries.unsqueeze(1)
    found = []
    for vectors in (images[queries], modified_queries(images[queries], texts, weight)):
        scores = (vectors @ images.T).scatter(1, own, -torch.inf)
        top = scores.topk(r, dim=1).indices
        near = (images[top].mean(dim=1) * images[queries]).sum(dim=1).mean()
        found.append((100 * float(shows.gather(1, top).double().mean()), float(near)))
    others = shows.scatter(1, own, False).sum(dim=1) / (len(images) - 1)
    (before, near_before), (after, near_after) = found
    return {"before": before, "after": after, "chance": 100 * float(others.mean()), "kept": near_after / near_before}
