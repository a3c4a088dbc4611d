"""Retrieval protocols in worked cases."""

import pytest
import torch

from bifocal.metrics import (
    PROTOCOLS,
    Protocol,
    protocol_ranks,
    protocol_score_ranks,
    score_ranks,
    split_folds,
    summarize,
    summarize_folds,
)
from tests.bifocal.metrics.retrieval.worked import IMAGE_OF_CAPTION, SCORES, blocks


def test_full_protocol_of_worked_case() -> None:
    """The full protocol, by hand.

    Caption retrieval, the best of an image's two captions against the eight others:
        image 0: correct 0.9, 0.1; nothing above 0.9: rank 0
        image 1: correct 0.4, 0.3; above 0.4: 0.6: rank 1
        image 2: correct 0.5, 0.6; above 0.6: 0.8, 0.7: rank 2
        image 3: correct 0.1, 0.3; above 0.3: 0.4; equal: 0.3 of caption 0: 1 + 1/2 = rank 1.5
        image 4: correct 0.5, 0.5; above 0.5: 0.7, 0.6; rank 2
    R@1 = 1/5. R@2: image 0, image 1, and image 3 with probability 1/2: 2.5/5. Median (from 1) 1.5 +
    1, mean 1.3 + 1.

    Image retrieval, a caption's image against the four others:
        0: 0.9 is first, 0       1: 0.1; above 0.2, 0.2, 0.4: 3     2: 0.4, 0     3: 0.3; above 0.8:
        1
        4: 0.5; above 0.6: 1     5: 0.6; above 0.7: 1               6: 0.1; above 0.3, 0.6: 2
        7: 0.3, 0                8: 0.5, 0                          9: 0.5; above 0.7: 1
    R@1 = 4/10, R@2 = 8/10, median 1 + 1, mean (0 + 3 + 0 + 1 + 1 + 1 + 2 + 0 + 0 + 1) / 10 + 1 =
    1.9.
    """
    report = summarize(score_ranks(blocks(SCORES), IMAGE_OF_CAPTION, images=5), (1, 2))
    assert report["caption_retrieval"] == pytest.approx(
        {"R@1": 20.0, "R@2": 50.0, "median_rank": 2.5, "mean_rank": 2.3}
    )
    assert report["image_retrieval"] == pytest.approx(
        {"R@1": 40.0, "R@2": 80.0, "median_rank": 2.0, "mean_rank": 1.9}
    )


def test_folds_of_one_image_have_full_recall() -> None:
    """COCO's 5-fold protocol made small: one image per fold, so every query has rank 1."""
    folds = split_folds(Protocol(fold=1, folds=5, captions=1), IMAGE_OF_CAPTION, 5)
    assert [fold.captions.tolist() for fold in folds] == [[0], [2], [4], [6], [8]]
    ranked = protocol_score_ranks(folds, blocks(SCORES))
    assert summarize_folds(ranked, (1,))["caption_retrieval"] == {
        "R@1": 100.0,
        "median_rank": 1.0,
        "mean_rank": 1.0,
    }


def test_summarize_folds_is_mean_over_folds() -> None:
    """Two folds of two images, the fifth left out.

    Fold 0, images 0 and 1 with captions 0 to 3: ranks 0 and 0, since 0.6 is not among the
    candidates. Fold 1, images 2 and 3 with captions 4 to 7: image 2 has 0.6 first, 0; image 3 has
    0.3 below 0.4, rank 1. R@1 is (100 + 50) / 2, the median rank (1 + 1.5) / 2.
    """
    folds = split_folds(Protocol(fold=2, folds=2, captions=2), IMAGE_OF_CAPTION[:8], 4)
    ranked = protocol_score_ranks(folds, blocks(SCORES))
    report = summarize_folds(ranked, (1,))["caption_retrieval"]
    assert report == {"R@1": 75.0, "median_rank": 1.25, "mean_rank": 1.25}


def test_protocol_with_first_caption_of_worked_case() -> None:
    """COCO 5K and Flickr30k's 1K made small: all images together, the first captions of each (5
    there, 1 here).

    Captions 0, 2, 4, 6, 8 remain. Caption retrieval:
        image 0: correct 0.9: 0    image 1: correct 0.4; above: 0.6 of caption 4: 1    image 2:
        correct 0.5, 0 image 3: correct 0.1; above: 0.3, 0.4; equal: 0.1 of caption 2; 0.2 of
        caption 8 above: 3 + 1/2 = 3.5 image 4: correct 0.5; above: 0.6 of caption 6: 1
    R@1 = 2/5, median (from 1) 1 + 1, mean (0 + 1 + 0 + 3.5 + 1) / 5 + 1 = 2.1.
    Image retrieval, of the list of the full protocol: 0, 0, 1, 2, 0: R@1 = 3/5, median 1, mean 1.6.
    """
    (fold,) = split_folds(Protocol(fold=5, captions=1), IMAGE_OF_CAPTION, 5)
    assert fold.captions.tolist() == [0, 2, 4, 6, 8]
    report = summarize_folds(protocol_score_ranks([fold], blocks(SCORES)), (1,))
    assert report["caption_retrieval"] == pytest.approx(
        {"R@1": 40.0, "median_rank": 2.0, "mean_rank": 2.1}
    )
    assert report["image_retrieval"] == pytest.approx(
        {"R@1": 60.0, "median_rank": 1.0, "mean_rank": 1.6}
    )
    assert PROTOCOLS["coco_5k"] == Protocol(fold=5000, captions=5)
    assert PROTOCOLS["flickr_1k"] == Protocol(fold=1000, captions=5)
    assert PROTOCOLS["coco_5fold_1k"] == Protocol(fold=1000, folds=5, captions=5)


def test_protocol_of_one_fold_ranks_the_first_images_of_a_larger_split() -> None:
    (fold,) = split_folds(Protocol(fold=3, captions=1, images=5), IMAGE_OF_CAPTION, 5)
    assert (fold.images.tolist(), fold.captions.tolist()) == ([0, 1, 2], [0, 2, 4])
    assert PROTOCOLS["coco_1k"] == Protocol(fold=1000, captions=5, images=5000)
    with pytest.raises(ValueError, match="ranks 1 x 3 images of 5 and the split has 3"):
        split_folds(Protocol(fold=3, captions=1, images=5), torch.arange(3), 3)


def test_protocol_ranks_of_vectors_and_of_scores_agree_for_any_caption_order() -> None:
    generator = torch.Generator().manual_seed(0)
    images, captions = (
        torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (8, 24)
    )
    image_of_caption = torch.arange(8).repeat(3)
    folds = split_folds(Protocol(fold=4, folds=2, captions=2), image_of_caption, 8)
    assert folds[1].captions.tolist() == [4, 5, 6, 7, 12, 13, 14, 15]
    by_vectors = protocol_ranks(folds, images, captions, rerank=True)
    by_scores = protocol_score_ranks(folds, blocks(images @ captions.T), rerank=True)
    for first, second in zip(by_vectors, by_scores, strict=True):
        assert summarize(first, (1, 3)) == summarize(second, (1, 3))


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol(fold=1000, folds=5, captions=5), "ranks 5 x 1000 images and the split has 5"),
        (Protocol(captions=3), "takes 3 captions of each image, and 5 images have fewer"),
    ],
)
def test_split_folds_rejects_split_of_other_size(protocol: Protocol, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        split_folds(protocol, IMAGE_OF_CAPTION, 5)
