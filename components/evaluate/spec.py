"""Stage evaluate: parameters, inputs and outputs."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot, StrictModel

EvaluatorRef = Annotated[
    ClassRef, FromRegistry("bifocal.evaluation", paths=("examples", "folder", "human_triplets"))
]


class ReportParams(StrictModel):
    """Extent of the report."""

    queries: int = Field(
        ge=1,
        le=50,
        description="best and worst queries of each direction, pairs of similar images, half "
        "the phrases",
    )
    duplicate_check: int = Field(
        ge=0, description="images per side to compare for near-duplicates, at most"
    )


class EvaluateParams(Params):
    """Section ``evaluate`` of params.yaml."""

    split: Literal["train", "val", "test"] = Field(description="evaluated split")
    evaluators: list[EvaluatorRef] = Field(
        min_length=1, description="parts of bifocal.evaluation, in report order"
    )
    bootstrap_resamples: int = Field(
        ge=100, description="resamples of the images for 95 % intervals"
    )
    report: ReportParams = Field(description="extent of the report")

    def conflicts(self) -> Iterator[str]:
        """Yield the evaluators that are listed more than once."""
        for name, count in Counter(evaluator.name for evaluator in self.evaluators).items():
            if count > 1:
                yield (
                    f"evaluators lists {name} {count} times, but its metrics have one name "
                    "each: list it once"
                )


COMPONENT = Component(
    name="evaluate",
    summary="Evaluate retrieval, pointing and semantic ranking, and write the report.",
    image="gpu",
    params=EvaluateParams,
    inputs=("dataset", "features", "text", "embedding"),
    outputs=("metrics", "report"),
    metrics=("metrics/summary.json",),
    plots=(
        Plot(
            "metrics/recall_curves.csv",
            x="K",
            y="caption_retrieval",
            title="Caption retrieval: R@K, percent",
        ),
        Plot(
            "metrics/recall_curves.csv",
            x="K",
            y="image_retrieval",
            title="Image retrieval: R@K, percent",
        ),
        Plot(
            "metrics/semantic_curves.csv",
            x="R",
            y="NDCG",
            title="Semantic ranking: NDCG@R, percent",
        ),
        Plot(
            "metrics/rank_histogram.csv",
            x="rank",
            y="image_retrieval",
            title="Image retrieval: ranks, percent",
        ),
    ),
    image_dirs=("metrics/pictures",),
    pages=("report/index.html",),
)
