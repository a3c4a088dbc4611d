"""Retrieval with vectors that are cut to their first dimensions."""

from collections.abc import Sequence
from typing import Any

from bifocal.evaluation.base import Result, Subject
from bifocal.metrics import retrieval_intervals, retrieval_ranks, summarize
from bifocal.models.two_branch import cut_vectors
from bifocal.report.sections import MetricRow, Section, Table

KS = (1, 5, 10)


class CutVectors:
    """R@K of vectors cut to their first dimensions, beside the whole vectors.

    Kusupati et al., "Matryoshka representation learning", NeurIPS 2022. A model with ``cut_dims``
    that was trained with ``MatryoshkaLoss`` loses little; any other model shows what cutting costs
    it.

    Args:
        dims: numbers of dimensions; a number that is not below the model's is left out.
    """

    title = "Cut vectors"

    def __init__(self, dims: Sequence[int] = (64, 128, 256)) -> None:
        if not dims or min(dims) < 1:
            raise ValueError(
                f"dims is {list(dims)}: give at least one number of dimensions, each at least 1"
            )
        self.dims = sorted(set(dims))

    def __call__(self, subject: Subject) -> Result:
        """Evaluate ``subject``; skipped without single vectors, or if none of ``dims`` is smaller
        than theirs."""
        if subject.embeddings is None:
            return Result(self.title, skipped="The model has no single vector per image.")
        images, captions = subject.embeddings
        whole, image_of_caption = images.shape[1], subject.pairs.image_of_caption
        dims = [dim for dim in self.dims if dim < whole]
        if not dims:
            return Result(
                self.title,
                skipped=f"The vectors have {whole} dimensions, dims starts at {self.dims[0]}.",
            )
        metrics: dict[str, Any] = {}
        rows, cells = [], []
        for dim in [*dims, whole]:
            ranks = retrieval_ranks(
                cut_vectors(images, dim), cut_vectors(captions, dim), image_of_caption
            )
            recall = {
                f"{direction.removesuffix('_retrieval')} R@{k}": values[f"R@{k}"]
                for direction, values in summarize(ranks, KS).items()
                for k in KS
            }
            intervals = retrieval_intervals(
                ranks, image_of_caption, KS, resamples=subject.resamples, seed=subject.seed
            )
            interval = intervals["recall_sum"]["total"]
            metrics[str(dim)] = recall | {"recall_sum": sum(recall.values())} | interval
            low, high = interval["low"], interval["high"]
            row = MetricRow(
                f"cut_vectors.{dim}.recall_sum",
                sum(recall.values()),
                f"{dim} dimensions",
                (low, high),
            )
            rows.append(row)
            values = (f"{value:.1f}" for value in recall.values())
            cells.append((row.label, *values, row.value_text(), row.interval_text()))
        for found in metrics.values():
            found["lost"] = metrics[str(whole)]["recall_sum"] - found["recall_sum"]
        columns = ("", *recall, "recall sum", "95 %")
        note = (
            "The first numbers of each vector, divided by their norm; all images of the split "
            "are ranked."
        )
        return Result(
            self.title,
            {"cut_vectors": metrics},
            rows=rows,
            sections=[Section(self.title, note, [Table("", columns, cells)])],
        )
