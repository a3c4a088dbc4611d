"""What evaluate reads, writes and is told."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClassRef, Component, FromRegistry, Params, Plot, UserPath


class EvaluateParams(Params):
    """Section ``evaluate`` of params.yaml."""

    split: Literal["train", "val", "test"] = Field(description="of the dataset")
    protocol: Literal["full", "coco_5fold_1k", "coco_5k", "flickr_1k"] = Field(
        description="which images are ranked together, and how many captions of each count"
    )
    recall_at: list[int] = Field(min_length=1, description="the K of R@K")
    curve_to: int = Field(ge=1, description="the largest K of the recall curves")
    resamples: int = Field(ge=100, description="of the bootstrap behind the intervals")
    pointing: Annotated[ClassRef | None, FromRegistry("bifocal.localization")] = Field(
        description="how phrases with boxes are pointed at, a part of bifocal.localization; null for not at all"
    )
    triplets: UserPath | None = Field(
        description="CSV file of triplets of images that people judged, columns query, first, second, o1, o2, o3; null "
        "for none"
    )
    champion: str | None = Field(
        pattern=r"^[^@]+@[a-z][a-z0-9_-]*$",
        description="registered version that the report compares with, as model@alias; null for none",
    )
    examples: int = Field(ge=1, le=50, description="best and worst queries of each direction in the report")
    compared_images: int = Field(ge=0, description="of a split that are looked at for near-duplicates, at most")


COMPONENT = Component(
    name="evaluate",
    summary="Measure retrieval, pointing and semantic ranking, and write the report.",
    image="gpu",
    params=EvaluateParams,
    inputs=("dataset", "features", "text", "embedding"),
    outputs=("metrics", "report"),
    code_paths=("bifocal",),
    metrics=("metrics/metrics.json",),
    plots=(
        Plot("metrics/recall_curves.csv", x="K", y="caption_retrieval", title="Caption retrieval: R@K, percent"),
        Plot("metrics/recall_curves.csv", x="K", y="image_retrieval", title="Image retrieval: R@K, percent"),
        Plot("metrics/semantic_curves.csv", x="R", y="NDCG", title="Semantic ranking: NDCG@R, percent"),
        Plot("metrics/rank_histogram.csv", x="rank", y="image_retrieval", title="Image retrieval: ranks, percent"),
    ),
    image_dirs=("metrics/pictures",),
)
