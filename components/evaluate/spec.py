"""What evaluate reads, writes and is told."""

from typing import Literal

from pydantic import Field

from components.spec import Component, Params, Plot


class EvaluateParams(Params):
    """Section ``evaluate`` of params.yaml."""

    split: Literal["train", "val", "test"] = Field(description="of the dataset")
    recall_at: list[int] = Field(min_length=1, description="the K of R@K")
    curve_to: int = Field(ge=1, description="the largest K of the recall curves")


COMPONENT = Component(
    name="evaluate",
    summary="Measure retrieval of captions and of images, with and without re-ranking.",
    image="gpu",
    params=EvaluateParams,
    inputs=("dataset", "features", "text", "embedding"),
    outputs=("metrics",),
    code=("bifocal",),
    metrics=("metrics/metrics.json",),
    plots=(
        Plot("metrics/recall_curves.csv", x="K", y="caption_retrieval", title="Caption retrieval: R@K, percent"),
        Plot("metrics/recall_curves.csv", x="K", y="image_retrieval", title="Image retrieval: R@K, percent"),
    ),
)
