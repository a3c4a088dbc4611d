"""Phrase localization: which of an image's proposals is the phrase's box?"""

from typing import Any

import numpy as np
import pandas as pd
import torch

from bifocal.datasets import Dataset
from bifocal.localization.base import RegionVectors
from bifocal.metrics import Proposed, phrase_average_precision, recall_over_proposals
from components.evaluate.pointer import BATCH, Pointer, asked

RESULTS = (1, 5, 10)


def are_proposals(seen: RegionVectors) -> bool:
    """Whether the regions of these images are boxes of things, and no cells of a grid, which have all one size."""
    sizes = (seen.boxes[:, :, 2:] - seen.boxes[:, :, :2]).cpu()
    return any(
        bool((own[here] - own[here][:1]).abs().max() > 1e-3)
        for own, here in zip(sizes, seen.mask.cpu(), strict=True)
        if here.any()
    )


def phrase_localization(pointer: Pointer, dataset: Dataset) -> tuple[dict[str, Any], pd.DataFrame]:
    """R@K at IoU 0.5, its upper bound, and the mean over the unique phrases of their AP after suppression, in percent.

    Returns:
        figures with what equal scores give under ``chance``; and each unique phrase, its count, and its AP in percent.
    """
    phrases = asked(dataset)
    sizes = dataset.images.set_index("image_id")[["width", "height"]]
    queries = []
    for start in range(0, len(phrases), BATCH):
        some = phrases.iloc[start : start + BATCH]
        located = pointer.locate(some)
        scale = torch.tensor(np.tile(sizes.loc[some["image_id"]].to_numpy(np.float64), 2))
        for phrase, truth, scores, boxes in zip(
            some["phrase"], some["boxes"], located.scores, located.boxes * scale.unsqueeze(1), strict=True
        ):
            here = scores.isfinite()
            queries.append(Proposed(phrase.lower(), scores[here].numpy(), boxes[here].numpy(), truth))
    precision = phrase_average_precision(queries)
    counts = phrases["phrase"].str.lower().value_counts()
    table = pd.DataFrame(
        {"phrase": counts.index, "count": counts.to_numpy(), "AP": [100 * precision[name] for name in counts.index]}
    ).sort_values(["count", "phrase"], ascending=[False, True], ignore_index=True)
    chance = [Proposed(one.phrase, 0 * one.scores, one.proposals, one.truth) for one in queries]
    figures: dict[str, Any] = dict(recall_over_proposals(queries, RESULTS))
    figures |= {"mAP": float(table["AP"].mean()), "phrases": len(queries), "unique": len(table)}
    return figures | {"chance": recall_over_proposals(chance, RESULTS)}, table
