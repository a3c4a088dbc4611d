"""Scores of all images and captions of a split with an exported late-interaction model."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bifocal.serving.encoders import Array, Captions, PairScorer

IMAGES, CAPTIONS = 16, 32
"""Images and captions per call of the scoring graph."""


def score_matrix(
    scorer: PairScorer, image_ids: Sequence[str], sentences: Sequence[str], encode: Callable[[Sequence[str]], Array]
) -> NDArray[np.float32]:
    """Return the scores (N, M) of N images and M sentences.

    The encoded words of all sentences stay in memory, the cells of ``IMAGES`` images. ``encode`` returns the cells (n,
    L, R, d) of images.
    """
    captions = list(_encoded(scorer, sentences))
    scores = np.empty((len(image_ids), len(sentences)), dtype=np.float32)
    for start in range(0, len(image_ids), IMAGES):
        cells = encode(image_ids[start : start + IMAGES])
        for number, block in enumerate(captions):
            columns = slice(number * CAPTIONS, number * CAPTIONS + len(block[0]))
            scores[start : start + len(cells), columns] = scorer.score(cells, block)
    return scores


def _encoded(scorer: PairScorer, sentences: Sequence[str]) -> Iterator[Captions]:
    for start in range(0, len(sentences), CAPTIONS):
        yield scorer.encode_captions(sentences[start : start + CAPTIONS])
