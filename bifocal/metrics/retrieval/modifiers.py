"""Text modifiers added to a query image or subtracted, after Gordo and Larlus, CVPR 2017, section 6
and figure 5."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def modified_queries(images: Tensor, texts: Tensor, weight: float) -> Tensor:
    """Return query vectors phi_q + weight * theta_t, of unit norm; a negative weight subtracts the
    concept.

    Shape:
        images (Q, d), texts (Q, d) -> (Q, d)
    """
    return normalize(images + weight * texts, dim=1)


def modifier_precision(
    images: Tensor,
    queries: Tensor,
    texts: Tensor,
    shows: Tensor,
    *,
    weight: float = 1.0,
    r: int = 10,
) -> dict[str, float]:
    """Return the share of the first R answers that show the concept, in percent, before and after a
    modifier.

    Args:
        images: embeddings to search.
        queries: row of each query in ``images``; a query is removed from its answers.
        texts: embedding of each query's modifier.
        shows: whether each image shows the concept of each query's modifier.
        weight: of the modifier; a negative weight subtracts the concept.

    Shape:
        images (N, d), queries (Q,), texts (Q, d), shows (Q, N) bool

    Returns:
        ``before``, ``after``: precision among the first ``r``; ``chance``: the share of all images
            that show the
        concept; ``kept``: mean cosine of the answers with the query image, after over before, which
        says how much of the rest of the query is kept.

    Raises:
        ValueError: shapes differ, or ``r`` is not in 1 to N - 1.
    """
    if shows.shape != (len(queries), len(images)) or texts.shape != (len(queries), images.shape[1]):
        raise ValueError(
            f"queries {tuple(queries.shape)}, texts {tuple(texts.shape)}, shows "
            f"{tuple(shows.shape)}, images {tuple(images.shape)} differ: expected (Q,), (Q, "
            "d), (Q, N) and (N, d)"
        )
    if not 1 <= r < len(images):
        raise ValueError(
            f"R is {r}: {len(images)} images, less the query, give 1 to {len(images) - 1} answers"
        )
    itself = queries.unsqueeze(1)
    precision, similarity = [], []
    for vectors in (images[queries], modified_queries(images[queries], texts, weight)):
        scores = (vectors @ images.T).scatter(1, itself, -torch.inf)
        top = scores.topk(r, dim=1).indices
        precision.append(100 * float(shows.gather(1, top).double().mean()))
        similarity.append(float((images[top].mean(dim=1) * images[queries]).sum(dim=1).mean()))
    others = shows.scatter(1, itself, False).sum(dim=1) / (len(images) - 1)
    return {
        "before": precision[0],
        "after": precision[1],
        "chance": 100 * float(others.mean()),
        "kept": similarity[1] / similarity[0],
    }
