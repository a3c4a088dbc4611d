"""Late interaction against loops over words and cells."""

import pytest
import torch

from benchmarks.quality.late_interaction import best_cells, gain, recalls


def test_score_is_mean_of_best_cells_weighted_by_the_norms_of_words() -> None:
    random = torch.Generator().manual_seed(0)
    cells = torch.randn(4, 5, 3, generator=random, dtype=torch.float64)
    words = torch.randn(2, 6, 3, generator=random, dtype=torch.float64)
    words[1, 4:] = 0  # the end of a shorter caption
    rows = torch.tensor([[2, 0], [1, 3]])
    found = best_cells(rows, cells, words)
    for query in range(2):
        vectors = words[query].tolist()
        norms = [sum(x * x for x in vector) ** 0.5 for vector in vectors]
        for place, image in enumerate(rows[query].tolist()):
            score = 0.0
            for vector in vectors:
                products = [
                    sum(x * y for x, y in zip(vector, cell, strict=True))
                    for cell in cells[image].tolist()
                ]
                score += max(products)
            assert found[query, place].item() == pytest.approx(score / sum(norms))


def test_recall_counts_the_images_before_the_own_one() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5], [0.9, 0.1, 0.5]]).repeat(1, 4)
    scores[:, 3:] -= 2
    hits = recalls(scores, torch.tensor([1, 1]))
    assert hits.tolist() == [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    assert gain(hits.repeat(5, axis=0), 0 * hits.repeat(5, axis=0)).startswith("+250.00 (")
