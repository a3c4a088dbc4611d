"""The page of the report, put together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bifocal.datasets import Dataset
from bifocal.report.duplicates import near_duplicates, shared_captions
from bifocal.report.page import Alike, Difference, Modified, Page, Pointed, SimilarImages
from bifocal.report.pictures import heatmap_overlay
from bifocal.text.vectorizers.base import FittedVectorizer
from components.evaluate.examples import extreme_queries
from components.evaluate.figures import DIRECTIONS, charts, rows_of, tiles
from components.evaluate.heatmaps import Heated, Similar
from components.evaluate.lineage import lineage
from components.evaluate.measure import Measured
from components.evaluate.modifiers import modified_examples, telling_words
from components.evaluate.pictures import Thumbnails
from components.evaluate.pointer import embed_texts, model_encoder
from components.evaluate.spec import EvaluateParams
from components.evaluate.tables import grounding_tables, meaning_tables

WORDS, SHARED, ALIKE_SHOWN = 4, 10, 12


@dataclass(frozen=True)
class ReportInputs:
    """What is reported on.

    Attributes:
        split: the rows that were measured; whole: the dataset they are of.
        reader: of words.
        why_not: why the model was not asked to point; empty if it was.
        pointed, similar: examples.
    """

    params: EvaluateParams
    model: Any
    whole: Dataset
    split: Dataset
    reader: FittedVectorizer
    measured: Measured
    why_not: str
    pointed: Sequence[Heated]
    similar: Sequence[Similar]


def make_page(
    subject: ReportInputs,
    figures: Mapping[str, Any],
    tables: Mapping[str, pd.DataFrame],
    champion: tuple[str, Sequence[Difference]],
    artifacts: Mapping[str, Path],
) -> Page:
    """The page.

    Args:
        figures: what ``metrics.json`` holds.
        tables: what ``recall_curves.csv``, ``rank_histogram.csv`` and ``semantic_curves.csv`` hold.
        champion: what it is called, or why there is none, and the differences.
        artifacts: whose lineage is shown.
    """
    params, split = subject.params, subject.split
    thumbnails = Thumbnails(subject.whole)
    best, worst = extreme_queries(subject.measured, split, thumbnails, params.examples)
    alike, compared = _alike(subject, thumbnails)
    modified, words_note = _modified(subject, figures, thumbnails)
    model = type(model_encoder(subject.model)).__name__
    return Page(
        title=f"{model} on the {params.split} split",
        subtitle=f"{figures['images']:,} images with {figures['captions']:,} captions · protocol {params.protocol}",
        tiles=tiles(figures),
        figures={name: rows_of(figures, direction) for direction, name in DIRECTIONS.items()},
        champion=champion[1],
        charts=charts(tables),
        best=best,
        worst=worst,
        pointed=[_pointed(one, thumbnails) for one in subject.pointed],
        grounding=grounding_tables(figures),
        meaning=meaning_tables(figures),
        similar=[_similar(pair, thumbnails) for pair in subject.similar],
        modified=modified,
        shared=[(str(text), int(count)) for text, count in shared_captions(split.captions).head(SHARED).to_numpy()],
        alike=alike,
        lineage=lineage(artifacts),
        notes={
            "figures": "R@K is the percentage of queries with a right answer among the first K; ranks count from 1. "
            f"Intervals: {params.resamples:,} bootstrap resamples of the images. Tied answers count as every order "
            "of them equally often.",
            "champion": f"{champion[0]}, on the queries that both answered. Percentage points, with paired intervals."
            if champion[1]
            else champion[0],
            "curves": "Left, how many queries are answered among the first K; right, where the first right answer is.",
            "queries": "A rank of 1 is the first place. Right answers are marked; of sentences that fit several images "
            "only those written for the image count as right.",
            "pointing": subject.why_not or _pointing_note(figures),
            "meaning": _meaning_note(figures),
            "similar": "What contributed to the five largest products of the two vectors (Grad-CAM): hot is what made "
            "the images similar.",
            "modifiers": words_note,
            "suspicious": "What can make the figures look better or worse than the model is.",
            "no_worst": "Every query finds a right answer at the first place.",
            "shared": "No sentence stands at more than one image of this split.",
            "alike": compared,
            "lineage": "Every artifact that this page rests on, with the parameters and hashes of its manifest.",
            "footer": "Made by python -m components evaluate. This page is one file and loads nothing.",
        },
    )


def _pointed(one: Heated, thumbnails: Thumbnails) -> Pointed:
    assert one.spot is not None
    x, y = one.spot.tolist()
    return Pointed(
        phrase=one.text,
        hit=one.hit,
        image=thumbnails.of(one.image_id, 360),
        heatmap=heatmap_overlay(one.heatmap),
        boxes=[(x0, y0, x1 - x0, y1 - y0) for x0, y0, x1, y1 in one.boxes.tolist()],
        spot=(x, y),
    )


def _similar(pair: Similar, thumbnails: Thumbnails) -> SimilarImages:
    return SimilarImages(
        images=(thumbnails.of(pair.first.image_id), thumbnails.of(pair.second.image_id)),
        heatmaps=(heatmap_overlay(pair.first.heatmap), heatmap_overlay(pair.second.heatmap)),
        caption=f"{pair.first.image_id} and {pair.second.image_id}, cosine {pair.cosine:.2f}",
    )


def _pointing_note(figures: Mapping[str, Any]) -> str:
    found = figures["pointing"]
    return (
        f"The heatmap of a phrase, its true boxes in white, and the spot that is pointed at. Of {found['phrases']:,} "
        f"phrases {found['accuracy']:.1f} % are hit (95 %: {found['low']:.1f} to {found['high']:.1f}); always pointing "
        f"at the centre hits {found['centre']:.1f} %, anywhere {found['random']:.1f} %. Up to half of those shown "
        "are misses."
    )


def _meaning_note(figures: Mapping[str, Any]) -> str:
    if "semantic" not in figures:
        return "The model has no vector of an image alone that could look for other images."
    found = figures["semantic"]
    return (
        f"{found['queries']:,} images look for the others. The first R results are right as far as their captions say "
        f"the same: NDCG@R weighs them by place, PCC@R correlates their scores. The area under NDCG@R is "
        f"{found['NDCG_area']:.1f} %, of random scores {found['chance']['NDCG_area']:.1f} %."
    )


def _modified(subject: ReportInputs, figures: Mapping[str, Any], thumbnails: Thumbnails) -> tuple[list[Modified], str]:
    if subject.measured.images is None:
        return [], "The model has no vectors of images and words that could be added."
    words, shows = telling_words(subject.split, WORDS)
    if not words:
        return [], "No word stands at 3 % to 25 % of the images, so there is none worth adding."
    images = torch.nn.functional.normalize(subject.measured.images, dim=1)
    vectors = embed_texts(subject.model, subject.reader, words).float().cpu()
    ids = list(subject.split.images["image_id"])
    found = figures["modifiers"]
    examples = modified_examples(images, vectors, words, shows, ids, thumbnails, subject.params.seed)
    return examples, (
        "A word's vector is added to that of an image, and the sum looks for images. Framed are those whose captions "
        f"have the word; the query's do not. Over more words and images {found['before']:.1f} % of the first results "
        f"show the word before it is added and {found['after']:.1f} % after; {found['chance']:.1f} % of all images do."
    )


def _alike(subject: ReportInputs, thumbnails: Thumbnails) -> tuple[list[Alike], str]:
    """Images of other splits that look like one of this split; a limited number is compared, and the page says so."""
    limit = subject.params.compared_images
    whole = subject.whole.images[subject.whole.images["path"].notna()]
    here = whole.loc[whole["split"] == subject.params.split, "image_id"].tolist()
    others = whole.loc[whole["split"] != subject.params.split, "image_id"].tolist()
    random = np.random.default_rng(subject.params.seed)
    chosen = [[ids[place] for place in sorted(random.permutation(len(ids))[:limit])] for ids in (here, others)]
    if not all(chosen):
        return [], "There are no image files of another split to compare with."
    pairs = near_duplicates(chosen[0], chosen[1], thumbnails.open)
    splits = dict(zip(whole["image_id"], whole["split"], strict=True))
    note = (
        f"{len(chosen[0]):,} of {len(here):,} images of this split were compared with {len(chosen[1]):,} of "
        f"{len(others):,} of the others; {len(pairs) or 'none'} look the same."
    )
    return [
        Alike(
            thumbnails.of(pair.first),
            thumbnails.of(pair.second),
            f"{pair.first} and {pair.second} ({splits[pair.second]}), correlation {pair.correlation:.4f}",
        )
        for pair in pairs[:ALIKE_SHOWN]
    ], note
