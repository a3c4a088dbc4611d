"""What a later comparison of two models needs: the rank of every query, and what the model was trained on."""

from hashlib import sha256
from pathlib import Path

import pandas as pd

from bifocal.datasets import Dataset
from bifocal.metrics import Ranks

RANKS = "ranks.parquet"
TRAINED_ON = "trained_on.parquet"


def write_evidence(folder: Path, dataset: Dataset, split: str, found: tuple[Ranks, Ranks]) -> None:
    """Write ``ranks.parquet`` and ``trained_on.parquet``.

    The first has a row for each query of both directions: ``direction``, ``query`` (image or caption id),
    ``image_id``, ``content`` (SHA-256 of the image file or of the sentence), ``rank`` (expected, from 0). The second
    has the SHA-256 of every image outside ``split``. An image that came as features alone has an empty one.

    Args:
        found: ranks of caption retrieval and of image retrieval on ``split``, in the dataset's order.
    """
    tables = dataset.split(split)
    images, captions = tables.images, tables.captions
    queries = (
        (images["image_id"], images["image_id"], images["sha256"]),
        (captions["caption_id"], captions["image_id"], captions["text"].map(lambda text: _digest(str(text)))),
    )
    pd.concat(
        pd.DataFrame(
            {
                "direction": direction,
                "query": query.astype(str).to_numpy(),
                "image_id": image.astype(str).to_numpy(),
                "content": content.fillna("").astype(str).to_numpy(),
                "rank": ranks.expected().numpy(),
            }
        )
        for direction, (query, image, content), ranks in zip(
            ("caption_retrieval", "image_retrieval"), queries, found, strict=True
        )
    ).to_parquet(folder / RANKS, index=False)
    others = dataset.images.loc[dataset.images["split"] != split, "sha256"].fillna("").astype(str)
    pd.DataFrame({"content": sorted(set(others) - {""})}, dtype=str).to_parquet(folder / TRAINED_ON, index=False)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
