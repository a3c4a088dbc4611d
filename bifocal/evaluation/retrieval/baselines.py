"""Baselines on the same images, features and text: zero-shot, canonical correlation analysis,
chance."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from bifocal.backbones.networks import named_networks, small_networks
from bifocal.evaluation.base import Result, Subject
from bifocal.evaluation.rank_tables import ZERO_SHOT
from bifocal.evaluation.retrieval.ranked_split import full_rank_table
from bifocal.export.outputs import in_batches
from bifocal.image_encoders import LinearEncoder, ResidualHead
from bifocal.metrics import Ranks, chance_report, recall_sum_gain, retrieval_ranks, summarize
from bifocal.models import TwoBranchModel
from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed
from bifocal.models.inputs import zero_shot_skip_reason
from bifocal.onnx.encoders import Embedder
from bifocal.registry import check_range
from bifocal.report.sections import MetricRow, Section, Table
from bifocal.text_encoders import LinearEncoder as TextLinearEncoder
from bifocal.text_encoders import ResidualHead as TextResidualHead
from bifocal.training.initialization.cca import CCA, caption_blocks

KS = (1, 5, 10)
SMALL, BATCH = "small", 32
NAMES = {
    "model": "this model",
    "zero_shot": "zero-shot",
    "untrained": "without training",
    "cca": "CCA",
    "chance": "chance",
}
Directions = dict[str, dict[str, float]]


class Baselines:
    """R@K of the model beside models that need no training, or no gradient steps, and the gain of
    the training.

    Zero-shot: both towers of one contrastive model, unchanged; only if features and text come from
    the same model (``OpenClip`` and ``OpenClipText``). Its ranks are kept beside the ranks of
    ``Retrieval``: heads are not promoted if their gain over it is not clear. Then register the
    contrastive model unchanged, with ``initialization: ZeroShot`` and ``phases: []``. Untrained:
    the encoder small, as 'bifocal index' searches by it. CCA: Gong et al., IJCV 2014, see
    ``bifocal.training.initialization.cca``, fitted on the split "train"; on two frozen encoders: Li
    et al., "CSA: data-efficient mapping of unimodal features to multimodal features", ICLR 2025.

    Args:
        cca_dim: maximum number of projections of CCA; 0 to leave it out. Its time grows with the
            cube of the dimensions of features and text.
        untrained: "small", or a folder with its networks, for a search without training; None to
            leave it out. It reads the images.
    """

    title = "Baselines"

    def __init__(self, cca_dim: int = 256, untrained: str | None = None) -> None:
        check_range("[0, inf)", cca_dim=cca_dim)
        self.cca_dim, self.untrained = cca_dim, untrained

    def __call__(self, subject: Subject) -> Result:
        """Evaluate the baselines of ``subject``."""
        if subject.embeddings is None:
            return Result(self.title, skipped="the model has several vectors per image.")
        captions, note = subject.pairs.image_of_caption, ""
        ranks = {"model": retrieval_ranks(*subject.embeddings, captions)}
        queries = None
        if reason := _unstored(subject) or zero_shot_skip_reason(
            subject.features, subject.vectorizer
        ):
            note += f" No zero-shot row: {reason}."
        else:
            dim = subject.features.dim
            model = _two_branches(subject, ResidualHead(dim, dim), TextResidualHead(dim, dim))
            ranks["zero_shot"] = _ranks(model, subject)
            table = full_rank_table(subject.split, captions, ranks["zero_shot"])
            queries = table.assign(direction=ZERO_SHOT + table["direction"])
        if self.untrained is not None and "zero_shot" not in ranks:
            try:
                ranks["untrained"] = _untrained_ranks(self.untrained, subject)
            except (OSError, ImportError) as error:
                note += f" No row without training: {error}."
        if self.cca_dim and not _unstored(subject):
            ranks["cca"] = _ranks(self._cca(subject), subject)
        if len(ranks) == 1:
            return Result(self.title, skipped=note.strip())
        systems = {name: summarize(found, KS) for name, found in ranks.items()}
        systems["chance"] = chance_report(captions, KS)
        metrics: dict[str, Any] = {
            name: values | {"recall_sum": _recall_sum(values)} for name, values in systems.items()
        }
        rows = [
            MetricRow(
                f"baselines.{name}.recall_sum",
                metrics[name]["recall_sum"],
                f"Recall sum, {NAMES[name]}",
                unit="",
            )
            for name in ranks
        ]
        known = {"baselines": metrics}
        if other := ranks.get("zero_shot") or ranks.get("untrained"):
            known["training"] = gain = _gain(ranks["model"], other, subject)
            note = f" {gain_sentence(gain)}{note}"
            bounds, name = (gain["low"], gain["high"]), "training.gain"
            label = "Recall sum, gain of the training"
            rows.append(MetricRow(name, gain["gain"], label, bounds, unit=""))
        text = f"All systems rank the same images and captions.{note}"
        section = Section(self.title, text, [_table(systems)])
        return Result(self.title, known, rows=rows, queries=queries, sections=[section])

    def _cca(self, subject: Subject) -> TwoBranchModel:
        train = ImageCaptionPairs(subject.dataset.split("train"), subject.features, subject.text)
        dims = (subject.features.dim, subject.text.dim)
        dim = min(self.cca_dim, *dims)
        model = _two_branches(subject, LinearEncoder(dims[0], dim), TextLinearEncoder(dims[1], dim))
        CCA().fit(model, caption_blocks(train))
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


def _unstored(subject: Subject) -> str:
    """Return why there is no zero-shot and no CCA; empty if the stores have what both need."""
    kind = subject.text.format.name
    if kind not in ("vectors", "sparse"):
        return f"it and CCA need one vector per caption, the text is {kind}"
    if subject.features.metadata.get("dtype", "float16") != "float16":
        return "it and CCA need stored features, not pixels"
    return ""


def _untrained_ranks(small: str, subject: Subject) -> tuple[Ranks, Ranks]:
    """Return the ranks by the encoder small of its networks at hand, or of a folder."""
    from bifocal.export.class_sentences import small_encoders

    networks = named_networks(None if small == SMALL else Path(small))
    embedder = Embedder(small_encoders(networks or small_networks(offline=True)))
    images = in_batches(
        lambda names: embedder.embed_images([subject.split.read(name) for name in names]),
        subject.pairs.image_ids,
        BATCH,
    )
    texts = subject.split.captions["text"].tolist()
    captions = in_batches(embedder.embed_sentences, texts, BATCH)
    return retrieval_ranks(images, captions, subject.pairs.image_of_caption)


def _gain(
    trained: tuple[Ranks, Ranks], untrained: tuple[Ranks, Ranks], subject: Subject
) -> dict[str, float]:
    expected = [[part.expected().cpu() for part in ranks] for ranks in (trained, untrained)]
    captions = subject.pairs.image_of_caption
    low, high = recall_sum_gain(
        expected[0], expected[1], captions, KS, resamples=subject.resamples, seed=subject.seed
    )
    sums = [_recall_sum(summarize(ranks, KS)) for ranks in (trained, untrained)]
    return {
        "trained": sums[0], "untrained": sums[1], "gain": sums[0] - sums[1], "low": low, "high": high,
        "images": float(len(subject.pairs.image_ids)), "captions": float(len(captions)),
    }  # fmt: skip


def gain_sentence(gain: Mapping[str, float]) -> str:
    """Return whether the training helped: recall sums, and the interval of their difference."""
    return (
        f"Training {'helped' if gain['low'] > 0 else 'did not clearly help'}: recall sum "
        f"{gain['trained']:.1f} with the trained model, {gain['untrained']:.1f} without training, "
        f"difference {gain['gain']:+.1f} (95 % interval {gain['low']:+.1f} to {gain['high']:+.1f}) "
        f"on {gain['captions']:.0f} held-out captions of {gain['images']:.0f} images."
    )


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
