"""Contract of evaluators: a subject in, a result with metrics, ranks and report sections out; and
the report's page."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast

import pandas as pd
from PIL import Image
from torch import Tensor

from bifocal.datasets import Dataset
from bifocal.features import FeatureStore
from bifocal.hubness.bank import HubnessBank
from bifocal.models.base import Model
from bifocal.models.batch import (
    BATCH,
    ImageCaptionPairs,
    dual_encoder,
    embed_images,
    embed_texts,
    is_dual_encoder,
)
from bifocal.models.inputs import check_inputs
from bifocal.report.pictures import Thumbnails
from bifocal.report.sections import (
    Details,
    MetricRow,
    Page,
    Section,
    Table,
    headline_tiles,
    metric_table,
)
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import FittedVectorizer

MAX_SUMMARY = 12
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Subject:
    """Model and data under evaluation. What several evaluators need is computed once.

    Attributes:
        dataset: all splits; evaluators tune and fit on ``train`` and ``val``.
        split_name: evaluated split, ``"train"``, ``"val"`` or ``"test"``.
        features, text: stores that hold the images and captions of the split.
        vectorizer: fitted vectorizer of ``text``, for phrases and words that are not in the store.
        seed: of every random draw.
        resamples: of the images, for 95 % intervals.
        shown: best and worst queries of each kind, wrong choices of each kind and similar images in
            the report.
        compared: images of the split, and of the other splits, to compare for near-duplicates; 0
            for none.
        bank: training captions and images that correct hubness, as they are served with the model;
            None for no correction.
    """

    model: Model
    dataset: Dataset
    split_name: str
    features: FeatureStore
    text: TextStore
    vectorizer: FittedVectorizer
    seed: int = 0
    resamples: int = 1000
    shown: int = 6
    compared: int = 5000
    bank: HubnessBank | None = None
    _cache: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_inputs(self.model, self.features, self.text)

    @cached_property
    def split(self) -> Dataset:
        """Evaluated split of the dataset."""
        return self.dataset.split(self.split_name)

    @cached_property
    def validation(self) -> Dataset | None:
        """The split "val", to tune evaluators on; None if it is the evaluated one."""
        return None if self.split_name == "val" else self.dataset.split("val")

    @cached_property
    def pairs(self) -> ImageCaptionPairs:
        """Images and captions of the split."""
        return ImageCaptionPairs(self.split, self.features, self.text)

    @cached_property
    def image_embeddings(self) -> Tensor | None:
        """Embeddings of the split's images (N, d); None if the model has no single vectors."""
        if not is_dual_encoder(self.model):
            return None
        return embed_images(dual_encoder(self.model), self.pairs.image_batches(BATCH))

    @cached_property
    def embeddings(self) -> tuple[Tensor, Tensor] | None:
        """Embeddings of the split's images (N, d) and captions (M, d); None if the model has no
        single vectors."""
        if self.image_embeddings is None:
            return None
        return self.image_embeddings, embed_texts(
            dual_encoder(self.model), self.pairs.caption_batches(BATCH)
        )

    @cached_property
    def thumbnails(self) -> Thumbnails:
        """Thumbnails of all splits."""
        return Thumbnails(self.dataset)

    @property
    def encoder_name(self) -> str:
        """Class name of the image encoder."""
        return type(self.model.image_encoder).__name__

    def cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return ``compute()``, computed at the first call with ``key``."""
        if key not in self._cache:
            self._cache[key] = compute()
        return cast(T, self._cache[key])


@dataclass(frozen=True)
class Result:
    """Result of one evaluator.

    Attributes:
        title: of the evaluator, in the report and the model card.
        metrics: nested values for ``metrics.json``; no two evaluators may use the same key.
        rows: scalars for MLflow, the model card and the page's tiles; by default the floats in
            ``metrics``.
        queries: one row per query, see ``bifocal.evaluation.rank_tables.query_ranks``.
        sections: of the page; by default one section with a table of ``rows``.
        tables: saved as ``<name>.csv``.
        figures: charts as SVG and images, saved as ``<name>.svg`` and ``<name>.png``.
        skipped: why the evaluator does not apply to the subject; empty if it does.
    """

    title: str
    metrics: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[MetricRow] | None = None
    queries: pd.DataFrame | None = None
    sections: Sequence[Section] | None = None
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    figures: Mapping[str, str | Image.Image] = field(default_factory=dict)
    skipped: str = ""

    def metric_rows(self) -> list[MetricRow]:
        """Return ``rows``, or the floats in ``metrics`` under their dotted names."""
        return list(_float_rows(self.metrics) if self.rows is None else self.rows)

    def report_sections(self) -> list[Section]:
        """Return ``sections``, or one section with a table of the metrics if there are some."""
        if self.sections is not None:
            return list(self.sections)
        rows = self.metric_rows()
        return [Section(self.title, blocks=[metric_table("", rows)])] if rows else []


class Evaluator(Protocol):
    """Part of ``bifocal.evaluation``."""

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; a result with a ``skipped`` reason if the evaluator does not apply
        to it."""
        ...


def merge_metrics(results: Iterable[Result]) -> dict[str, Any]:
    """Return the metrics of all results; two results with the same key are an error."""
    merged: dict[str, Any] = {}
    for result in results:
        repeated = sorted(merged.keys() & result.metrics.keys())
        if repeated:
            raise ValueError(
                f"{result.title} has the metrics {', '.join(repeated)} of another evaluator: "
                "list it once"
            )
        merged |= result.metrics
    return merged


def scalar_metrics(results: Iterable[Result]) -> dict[str, float]:
    """Return the scalars to track by their dotted names, without intervals, chance levels and
    counts."""
    return {row.name: row.value for result in results for row in result.metric_rows()}


def summary_metrics(results: Iterable[Result]) -> dict[str, float]:
    """Return at most ``MAX_SUMMARY`` scalars to compare experiments: headlines, or the first
    metric, of each result."""
    chosen: list[MetricRow] = []
    for result in results:
        rows = result.metric_rows()
        chosen += [row for row in rows if row.headline] or rows[:1]
    return {row.name: row.value for row in chosen[:MAX_SUMMARY]}


def _float_rows(values: Mapping[str, Any], prefix: str = "") -> Iterator[MetricRow]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _float_rows(value, f"{prefix}{key}.")
        elif isinstance(value, float):
            yield MetricRow(f"{prefix}{key}", value, unit="")


def build_page(
    subject: Subject,
    results: Sequence[Result],
    lineage: Mapping[str, Mapping[str, str]],
    footer: str = "",
) -> Page:
    """Return the page; an empty ``lineage`` leaves out its section."""
    sections = [section for result in results for section in result.report_sections()]
    skipped = [(result.title, result.skipped) for result in results if result.skipped]
    if skipped:
        note = "Evaluators that do not apply to this model or dataset."
        sections.append(
            Section(
                "Skipped", note, [Table("", ("evaluator", "reason"), skipped, wide=True, text=True)]
            )
        )
    if lineage:
        note = "Artifacts behind this page, with the parameters and hashes of their manifests."
        details = [Details(artifact, values) for artifact, values in lineage.items()]
        sections.append(Section("Lineage", note, details))
    return Page(
        title=f"{subject.encoder_name} on the {subject.split_name} split",
        subtitle=data_sentence(subject),
        tiles=headline_tiles([row for result in results for row in result.metric_rows()]),
        sections=sections,
        footer=footer,
    )


def data_sentence(subject: Subject) -> str:
    """Return a sentence about the evaluated split."""
    images, captions, phrases = (
        len(table)
        for table in (subject.split.images, subject.split.captions, subject.split.phrases)
    )
    boxes = f" and {phrases:,} phrases with boxes" if phrases else ""
    return f"Split {subject.split_name}: {images:,} images with {captions:,} captions{boxes}."
