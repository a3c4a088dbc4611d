"""Baselines on the same images, features and text: zero-shot, canonical correlation analysis,
chance."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import torch

from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.rank_tables import with_zero_shot_names
from bifocal.evaluation.retrieval.ranked_split import rank_table
from bifocal.image_encoders import LinearEncoder, ResidualHead
from bifocal.metrics import PROTOCOLS, Ranks, chance_report, retrieval_ranks, split_folds, summarize
from bifocal.models import TwoBranchModel
from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed
from bifocal.models.inputs import zero_shot_skip_reason
from bifocal.registry import check_range
from bifocal.report.sections import MetricRow, Section, Table
from bifocal.text_encoders import LinearEncoder as TextLinearEncoder
from bifocal.text_encoders import ResidualHead as TextResidualHead
from bifocal.training.initialization.cca import caption_blocks, fit_cca

KS = (1, 5, 10)
NAMES = {"model": "this model", "zero_shot": "zero-shot", "cca": "CCA", "chance": "chance"}
Directions = dict[str, dict[str, float]]


class Baselines:
    """R@K of the model beside models that need no gradient steps, on the same stored features and
    text.

    Zero-shot: both towers of one contrastive model, unchanged; only if features and text come from
    the same model (``OpenClip`` and ``OpenClipText``). Its ranks are kept beside the ranks of
    ``Retrieval``: heads are not promoted if their gain over it is not clear. Then register the
    contrastive model unchanged, with ``initialization: ZeroShot`` and ``phases: []``. CCA: Gong et
    al., IJCV 2014, see ``bifocal.training.initialization.cca``, fitted on the split "train"; on two
    frozen encoders: Li et al., "CSA: data-efficient mapping of unimodal features to multimodal
    features", ICLR 2025.

    Args:
        cca_dim: maximum number of projections of CCA; 0 to leave it out. Its time grows with the
            cube of the dimensions of features and text.
    """

    title = "Baselines"

    def __init__(self, cca_dim: int = 256) -> None:
        check_range("[0, inf)", cca_dim=cca_dim)
        self.cca_dim = cca_dim

    def __call__(self, subject: Subject) -> Result:
        """Evaluate the baselines of ``subject``."""
        if subject.embeddings is None:
            return Result(self.title, skipped="the model has several vectors per image.")
        if subject.text.format.name not in ("vectors", "sparse"):
            kind = subject.text.format.name
            return Result(
                self.title,
                skipped=f"CCA and zero-shot need one vector per caption, the text is {kind}.",
            )
        if subject.features.metadata.get("dtype", "float16") != "float16":
            return Result(self.title, skipped="CCA and zero-shot need stored features, not pixels.")
        captions = subject.pairs.image_of_caption
        systems: dict[str, Directions] = {
            "model": summarize(retrieval_ranks(*subject.embeddings, captions), KS)
        }
        reason = zero_shot_skip_reason(subject.features, subject.vectorizer)
        queries = None
        if reason is None:
            dim = subject.features.dim
            model = _two_branches(subject, ResidualHead(dim, dim), TextResidualHead(dim, dim))
            ranks = _ranks(model, subject)
            systems["zero_shot"], queries = summarize(ranks, KS), _zero_shot_queries(subject, ranks)
        if self.cca_dim:
            systems["cca"] = summarize(_ranks(self._cca(subject), subject), KS)
        systems["chance"] = chance_report(captions, KS)
        metrics = {
            name: values | {"recall_sum": _recall_sum(values)} for name, values in systems.items()
        }
        note = (
            "All systems rank the same images and captions, from the same stored features and text."
        )
        note += "" if reason is None else f" No zero-shot row: {reason}."
        return Result(
            self.title,
            {"baselines": metrics},
            rows=[
                MetricRow(
                    f"baselines.{name}.recall_sum",
                    _recall_sum(values),
                    f"Recall sum, {NAMES[name]}",
                )
                for name, values in systems.items()
                if name != "chance"
            ],
            queries=queries,
            sections=[Section(self.title, note, [_table(systems)])],
        )

    def _cca(self, subject: Subject) -> TwoBranchModel:
        train = ImageCaptionPairs(subject.dataset.split("train"), subject.features, subject.text)
        dims = (subject.features.dim, subject.text.dim)
        dim = min(self.cca_dim, *dims)
        model = _two_branches(subject, LinearEncoder(dims[0], dim), TextLinearEncoder(dims[1], dim))
        fit_cca(model, caption_blocks(train))
        return model


def _two_branches(subject: Subject, image_encoder: Any, text_encoder: Any) -> TwoBranchModel:
    return TwoBranchModel(image_encoder, text_encoder, text_format=subject.text.format.name).to(
        subject.model.device
    )


def _ranks(model: TwoBranchModel, subject: Subject) -> tuple[Ranks, Ranks]:
    with torch.inference_mode():
        return retrieval_ranks(
            *embed(dual_encoder(model), subject.pairs), subject.pairs.image_of_caption
        )


def _zero_shot_queries(subject: Subject, ranks: tuple[Ranks, Ranks]) -> pd.DataFrame:
    """Return the ranks of all queries, with the protocol "full" of ``Retrieval``."""
    folds = split_folds(
        PROTOCOLS["full"], subject.pairs.image_of_caption, len(subject.pairs.image_ids)
    )
    caption_ranks, image_ranks = (side.expected().numpy() for side in ranks)
    table = rank_table(
        subject.split.images, subject.split.captions, caption_ranks, image_ranks, folds
    )
    return with_zero_shot_names(table)


def _recall_sum(values: Mapping[str, Mapping[str, float]]) -> float:
    return sum(direction[f"R@{k}"] for direction in values.values() for k in KS)


def _table(systems: Mapping[str, Directions]) -> Table:
    columns = [
        "system",
        "recall sum",
        *(f"{side} R@{k}" for side in ("captions", "images") for k in KS),
    ]
    rows = [
        [NAMES[name], f"{_recall_sum(values):.1f}"]
        + [f"{direction[f'R@{k}']:.1f}" for direction in values.values() for k in KS]
        for name, values in systems.items()
    ]
    return Table("R@K of this model and of baselines, percent", columns, rows, wide=True)
