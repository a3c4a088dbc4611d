"""Re-ranking in a worked case."""

import pytest
import torch

from bifocal.metrics import score_ranks, summarize
from bifocal.metrics.retrieval.ranks import rerank_for_captions, rerank_for_images
from tests.bifocal.metrics.retrieval.worked import IMAGE_OF_CAPTION, SCORES, blocks


def test_reranking_of_worked_case() -> None:
    """Thesis eq. (3.12)-(3.13), the full protocol, by hand.

    For caption retrieval a caption's scores s become s (1 + 1 / best), best being its best image's.
    The best of captions 0 to 9: 0.9, 0.4, 0.4, 0.8, 0.6, 0.7, 0.6, 0.3, 0.5, 0.7; the factors:
    2.11, 3.5, 3.5, 2.25, 2.67, 2.43, 2.67, 4.33, 3, 2.43.
        image 0: correct 0.9 x 2.11 = 1.9; others at most 0.3 x 3.5 = 1.05: rank 0
        image 1: correct 0.4 x 3.5 = 1.4 (0.3 x 2.25 = 0.68); above: 0.6 x 2.67 = 1.6: rank 1
        image 2: correct 0.5 x 2.67 = 1.33, 0.6 x 2.43 = 1.46; above: 0.8 x 2.25 = 1.8, 0.7 x 2.43 =
        1.7: rank 2 image 3: correct 0.3 x 4.33 = 1.3; others 0.4 x 2.67 = 1.07, 0.3 x 2.11 = 0.63,
        0.2 x 3.5 = 0.7: rank 0 image 4: correct 0.5 x 3 = 1.5; above: 0.7 x 2.43 = 1.7, 0.6 x 2.67
        = 1.6: rank 2; 0.4 x 3.5 = 1.4 is below
    R@1 = 2/5, mean (0 + 1 + 2 + 0 + 2) / 5 + 1 = 2, median 1 + 1. Image 3 gains: captions with a
    high best score lose weight.

    For image retrieval an image's scores become s (1 + 1 / best), the best of images 0 to 4: 0.9,
    0.6, 0.8, 0.4, 0.7; the factors: 2.11, 2.67, 2.25, 3.5, 2.43. Caption 6, of image 3: 0.1 x 3.5 =
    0.35; above 0.3 x 2.25 = 0.68 and 0.6 x 2.43 = 1.46: rank 2, as before. Caption 4, of image 2:
    0.5 x 2.25 = 1.13; above 0.6 x 2.67 = 1.6 and now 0.4 x 3.5 = 1.4: rank 2.
    """
    caption_ranks, image_ranks = score_ranks(
        blocks(SCORES.double()), IMAGE_OF_CAPTION, images=5, rerank=True
    )
    assert caption_ranks.expected().tolist() == [0, 1, 2, 0, 2]
    report = summarize((caption_ranks, image_ranks), (1,))
    assert report["caption_retrieval"] == pytest.approx(
        {"R@1": 40.0, "median_rank": 2.0, "mean_rank": 2.0}
    )
    assert image_ranks.expected()[[6, 4]].tolist() == [2, 2]


@pytest.mark.parametrize("best", [1e-9, 0.0, -0.2])
def test_reranking_leaves_out_a_candidate_whose_best_score_says_nothing(best: float) -> None:
    scores = torch.tensor([[0.5, best], [0.2, best - 0.3]], dtype=torch.float64)
    factor = torch.tensor([[1 + 1 / 0.5, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(rerank_for_captions(scores), scores * factor)
    torch.testing.assert_close(rerank_for_images(scores.T), (scores * factor).T)
