"""Ranks of synthetic models whose R@1 is set."""

import numpy as np
import pandas as pd

from pipelines.promotion.policy import FILE, load

POLICY = load(FILE)
IMAGES, CAPTIONS_PER_IMAGE = 60, 3


def ranks(recall: float, seed: int = 0) -> pd.DataFrame:
    """Return ranks of a model: 0 with probability ``recall``, otherwise 50."""
    generator = np.random.default_rng(seed)
    rows = [("caption_retrieval", str(image), str(image), f"image {image}") for image in range(IMAGES)] + [
        ("image_retrieval", f"{image}-{caption}", str(image), f"text {image}-{caption}")
        for image in range(IMAGES)
        for caption in range(CAPTIONS_PER_IMAGE)
    ]
    frame = pd.DataFrame(rows, columns=["direction", "query", "image_id", "content"])
    return frame.assign(protocol="full", rank=np.where(generator.random(len(frame)) < recall, 0.0, 50.0))
