"""Text modifiers."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import normalize

from bifocal.evaluation import TextModifiers
from bifocal.evaluation.base import Subject
from bifocal.evaluation.semantic.text_modifiers import modifier_metrics


def test_text_modifiers_are_skipped_without_distinctive_words(subject: Subject) -> None:
    captions = subject.dataset.captions.assign(text="a dog")
    changed = replace(subject, dataset=replace(subject.dataset, captions=captions))
    assert "No word occurs" in TextModifiers()(changed).skipped


def test_a_subtracted_word_is_asked_of_images_that_have_it() -> None:
    """Figure 5 against loops over all suitable queries: 24 images, one word of six of them."""
    generator = torch.Generator().manual_seed(0)
    images = normalize(torch.randn(24, 5, generator=generator, dtype=torch.float64), dim=1)
    word = normalize(torch.randn(1, 5, generator=generator, dtype=torch.float64), dim=1)
    has_word = torch.arange(24)[None] % 4 == 0
    vectors, direction = images.tolist(), word[0].tolist()

    def share(query: int, weight: float) -> float:
        asked = [x + weight * t for x, t in zip(vectors[query], direction, strict=True)]
        scores = {
            row: sum(a * b for a, b in zip(asked, vectors[row], strict=True))
            for row in range(24)
            if row != query
        }
        return sum(row % 4 == 0 for row in sorted(scores, key=lambda row: -scores[row])[:10]) / 10

    values = modifier_metrics(images, word, has_word, seed=0, weight=-1.0)
    queries = [row for row in range(24) if row % 4 == 0]
    for name, weight in (("before", 0.0), ("after", -1.0)):
        assert values[name] == pytest.approx(
            100 * sum(share(query, weight) for query in queries) / len(queries)
        )
    assert values["chance"] == pytest.approx(100 * 5 / 23)
    assert values["after"] != values["before"]
