"""Images with joined captions."""

import numpy as np
import pytest
import torch

from bifocal.batch import ImageCaptionPairs
from bifocal.training.pairs import SemanticPairs


def test_semantic_pairs_sum_and_normalize_the_captions_of_an_image(semantic: SemanticPairs) -> None:
    text = semantic.texts(torch.arange(40)).values.double().numpy()
    captions = semantic.pairs.caption_text(torch.arange(80)).values.double().numpy()
    sums = captions[0::2] + captions[1::2]
    np.testing.assert_allclose(text, sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=1e-6)


def test_semantic_pairs_reject_tokens(pairs: ImageCaptionPairs) -> None:
    with pytest.raises(ValueError, match="not tokens: vectorize with TFIDF"):
        SemanticPairs(pairs)


def test_semantic_pairs_reject_several_processes(semantic: SemanticPairs) -> None:
    with pytest.raises(ValueError, match="one process"):
        semantic.batch(torch.arange(3), 0, 2)
