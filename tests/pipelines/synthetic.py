"""Ranks of models that are as good as they are told to be."""

import numpy as np
import pandas as pd

from pipelines.promotion.policy import FILE, read

RULES = read(FILE).model_copy(update={"resamples": 300, "wait": 60.0, "latency_ms": 1000.0})
IMAGES, CAPTIONS = 60, 3


def ranks(quality: float, seed: int = 0) -> pd.DataFrame:
    """A model whose queries are answered first with probability ``quality``, and otherwise at rank 50."""
    generator = np.random.default_rng(seed)
    rows = [("caption_retrieval", str(image), str(image), f"image {image}") for image in range(IMAGES)] + [
        ("image_retrieval", f"{image}-{caption}", str(image), f"text {image}-{caption}")
        for image in range(IMAGES)
        for caption in range(CAPTIONS)
    ]
    frame = pd.DataFrame(rows, columns=["direction", "query", "image_id", "content"])
    return frame.assign(rank=np.where(generator.random(len(frame)) < quality, 0.0, 50.0))
