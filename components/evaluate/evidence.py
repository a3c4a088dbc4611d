"""What a later comparison of two models needs: the rank of every query, and what the model was trained on."""

from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd

from bifocal.datasets import Dataset
from components.evaluate.measure import Measured
from components.evaluate.pointing import Pointing

RANKS = "ranks.parquet"
TRAINED_ON = "trained_on.parquet"


def write_evidence(
    folder: Path, dataset: Dataset, split: str, measured: Measured, pointing: Pointing | None
) -> pd.DataFrame:
    """Write ``ranks.parquet`` and ``trained_on.parquet``.

    The first has a row for each query of both directions: ``direction``, ``query`` (image or caption id),
    ``image_id``, ``content`` (SHA-256 of the image file or of the sentence), ``rank`` (expected, from 0); and one for
    each phrase that was pointed at, direction "pointing", whose rank is 0 for a hit and 1 for a miss. The second has
    the SHA-256 of every image outside ``split``. An image that came as features alone has an empty one.

    Returns:
        the first table.
    """
    tables = dataset.split(split)
    image_rows, caption_rows = (rows.numpy() for rows in measured.rows())
    images, captions = tables.images.iloc[image_rows], tables.captions.iloc[caption_rows]
    by_captions, by_images = measured.all_ranks()
    frames = [
        _frame("caption_retrieval", images["image_id"], images["image_id"], images["sha256"], by_captions.expected()),
        _frame(
            "image_retrieval", captions["caption_id"], captions["image_id"], _digests(captions["text"]),
            by_images.expected(),
        ),
    ]  # fmt: skip
    if pointing is not None:
        phrases = pointing.phrases
        content = _digests(phrases["phrase"])
        frames.append(_frame("pointing", phrases["phrase_id"], phrases["image_id"], content, ~pointing.hits))
    ranks = pd.concat(frames, ignore_index=True)
    ranks.to_parquet(folder / RANKS, index=False)
    others = dataset.images.loc[dataset.images["split"] != split, "sha256"].fillna("").astype(str)
    pd.DataFrame({"content": sorted(set(others) - {""})}, dtype=str).to_parquet(folder / TRAINED_ON, index=False)
    return ranks


def _frame(direction: str, query: pd.Series, image: pd.Series, content: pd.Series, rank: object) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "direction": direction,
            "query": query.astype(str).to_numpy(),
            "image_id": image.astype(str).to_numpy(),
            "content": content.fillna("").astype(str).to_numpy(),
            "rank": np.asarray(rank, dtype=np.float64),
        }
    )


def _digests(texts: pd.Series) -> pd.Series:
    return texts.map(lambda text: sha256(str(text).encode()).hexdigest())
