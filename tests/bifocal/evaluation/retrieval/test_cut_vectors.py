"""Retrieval with cut vectors."""

import numpy as np
import pytest

from bifocal.evaluation import CutVectors
from bifocal.evaluation.base import Subject


def test_recall_of_cut_vectors_equals_loops(subject: Subject, grounding_subject: Subject) -> None:
    assert subject.embeddings is not None
    images, captions = (vectors.double().numpy() for vectors in subject.embeddings)
    metrics = CutVectors(dims=(2, 64))(subject).metrics["cut_vectors"]
    assert list(metrics) == ["2", "6"]
    for dim in (2, 6):
        hits = 0
        for caption, own in zip(captions, subject.pairs.image_of_caption.tolist(), strict=True):
            scores = [image[:dim] @ caption[:dim] / np.linalg.norm(image[:dim]) for image in images]
            hits += int(np.argmax(scores)) == own
        assert metrics[str(dim)]["image R@1"] == pytest.approx(100 * hits / len(captions))
        assert (
            metrics[str(dim)]["low"] <= metrics[str(dim)]["recall_sum"] <= metrics[str(dim)]["high"]
        )
    assert metrics["2"]["lost"] == pytest.approx(
        metrics["6"]["recall_sum"] - metrics["2"]["recall_sum"]
    )
    assert metrics["6"]["lost"] == 0.0
    assert "no single vector" in CutVectors()(grounding_subject).skipped
    assert CutVectors()(subject).skipped == "The vectors have 6 dimensions, dims starts at 64."
