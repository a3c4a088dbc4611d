"""Phrase localization: which of an image's proposals is the box of a phrase?"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch

from bifocal.datasets import Dataset
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.localization.locator import (
    AnyLocalizer,
    choose_locator,
    pointing_skip_reason,
)
from bifocal.localization.base import RegionVectors
from bifocal.metrics import (
    ProposalQuery,
    phrase_average_precision,
    recall_over_proposals,
    with_union_boxes,
)
from bifocal.models.phrase_locator import BATCH, PhraseLocator, phrases_in_context
from bifocal.report.sections import MetricRow, Section, Table, metric_table

KS = (1, 5, 10)
CHECKED_IMAGES = 8
"""Images whose boxes show whether regions are proposals."""


class PhraseLocalization:
    """R@K of proposals at IoU 0.5, for any box and the union of a phrase's boxes, by category; mAP
    over unique phrases.

    Plummer et al., "Flickr30k Entities", ICCV 2015; Wang, Li and Lazebnik, CVPR 2016, section 3.3.
    R@1 of ``RefCOCO``, whose phrases have one box, is its accuracy.

    Args:
        localizer: part of ``bifocal.localization``; None for the encoder's own.
    """

    title = "Phrase localization"
    parts: ClassVar[Mapping[str, str]] = {"localizer": "bifocal.localization"}

    def __init__(self, localizer: AnyLocalizer | None = None) -> None:
        self.localizer = localizer

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without phrases or a localizer, and if regions are cells of
        a grid."""
        skipped = pointing_skip_reason(subject, self.localizer)
        if skipped:
            return Result(self.title, skipped=skipped)
        locator = choose_locator(subject, self.localizer).locator
        if not regions_are_proposals(
            locator.encode(list(subject.split.images["image_id"].iloc[:CHECKED_IMAGES]))
        ):
            return Result(self.title, skipped="The regions are cells of a grid, not proposals.")
        metrics, precision = localize_phrases(locator, subject.split)
        rows = [
            MetricRow(
                f"phrase_localization.{name}",
                metrics[name],
                label,
                baselines=_chance(metrics, name),
            )
            for name, label in [(name, name.replace("_", " ")) for name in metrics["chance"]]
            + [("mAP", f"mAP of {metrics['unique']:,} unique phrases")]
        ]
        rows += [
            MetricRow(
                f"phrase_localization.union_box.{name}",
                value,
                f"{name.replace('_', ' ')}, union box",
            )
            for name, value in metrics["union_box"].items()
        ]
        names = [*metrics["union_box"], "phrases"]
        by_category = [
            (name, *(f"{values[key]:.1f}" for key in names[:-1]), f"{values['phrases']:,}")
            for name, values in metrics["categories"].items()
        ]
        tables = [
            Table("By category", ("", *(name.replace("_", " ") for name in names)), by_category)
        ]
        note = (
            f"R@K: percentage of {metrics['phrases']:,} phrases with a correct proposal (IoU "
            "at least 0.5) among the first K, by its overlap with any box of the phrase, or "
            "with the smallest box around them (union box). Upper bound: percentage of "
            "phrases with any correct proposal. Chance: equal scores."
        )
        return Result(
            self.title,
            {"phrase_localization": metrics},
            rows=rows,
            sections=[
                Section(
                    self.title, note, [metric_table("", rows), *(tables if by_category else [])]
                )
            ],
            tables={"phrase_precision": precision},
        )


def regions_are_proposals(vectors: RegionVectors) -> bool:
    """Return whether regions are boxes of different sizes; cells of a grid have one size."""
    sizes = (vectors.boxes[:, :, 2:] - vectors.boxes[:, :, :2]).cpu()
    return any(
        bool((sizes_of_image[present] - sizes_of_image[present][:1]).abs().max() > 1e-3)
        for sizes_of_image, present in zip(sizes, vectors.mask.cpu(), strict=True)
        if present.any()
    )


def localize_phrases(
    locator: PhraseLocator, dataset: Dataset
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Return R@K, its upper bound, chance and mAP in percent, and a table of the AP of each unique
    phrase."""
    phrases = phrases_in_context(dataset)
    sizes = dataset.images.set_index("image_id")[["width", "height"]]
    queries = []
    for start in range(0, len(phrases), BATCH):
        batch = phrases.iloc[start : start + BATCH]
        regions = locator.locate(batch)
        scale = torch.tensor(np.tile(sizes.loc[batch["image_id"]].to_numpy(np.float64), 2))
        pixels = regions.boxes * scale.unsqueeze(1)
        for phrase, truth, scores, boxes in zip(
            batch["phrase"], batch["boxes"], regions.scores, pixels, strict=True
        ):
            present = scores.isfinite()
            queries.append(
                ProposalQuery(
                    phrase.lower(), scores[present].numpy(), boxes[present].numpy(), truth
                )
            )
    precision = phrase_average_precision(queries)
    counts = phrases["phrase"].str.lower().value_counts()
    table = pd.DataFrame(
        {
            "phrase": counts.index,
            "count": counts.to_numpy(),
            "AP": [100 * precision[name] for name in counts.index],
        }
    ).sort_values(["count", "phrase"], ascending=[False, True], ignore_index=True)
    equal = [
        ProposalQuery(query.phrase, 0 * query.scores, query.proposals, query.truth)
        for query in queries
    ]
    categories: dict[str, list[ProposalQuery]] = {}
    for query, category in zip(queries, phrases["category"], strict=True):
        for name in category.split("/") if isinstance(category, str) else ():
            categories.setdefault(name, []).append(query)
    return {
        **recall_over_proposals(queries, KS),
        "union_box": recall_over_proposals(with_union_boxes(queries), KS),
        "categories": {
            name: {"phrases": len(categories[name])} | recall_over_proposals(categories[name], KS)
            for name in sorted(categories)
        },
        "mAP": float(table["AP"].mean()),
        "phrases": len(queries),
        "unique": len(table),
        "chance": recall_over_proposals(equal, KS),
    }, table


def _chance(metrics: Mapping[str, Any], name: str) -> dict[str, float]:
    return {"chance": metrics["chance"][name]} if name in metrics["chance"] else {}
