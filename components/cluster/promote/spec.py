"""Step promote: parameters, inputs and outputs."""

from typing import Annotated

from pydantic import Field

from runtime.spec import Alias, ClusterStep, ModelName, Params, StrictModel

Metric = Annotated[
    str, Field(pattern=r"^(recall_sum|(caption_retrieval|image_retrieval)\.R@[1-9]\d*|pointing)$", min_length=1)
]


ACCEPTED = "accepted"
"""Output: ``"true"`` if the version meets the policy, else ``"false"``."""


class PromotionPolicy(StrictModel):
    """When a candidate becomes the champion: the file ``promotion.yaml``. Metrics are in percent."""

    model: ModelName = Field(description="name in the registry")
    candidate: Alias = Field(default="candidate", description="alias")
    champion: Alias = Field(default="champion", description="alias")
    previous: Alias = Field(default="previous", description="alias of the champion before")
    recall_at: list[Annotated[int, Field(ge=1)]] = Field(
        default=[1, 5, 10], min_length=1, description="K of the recall sum"
    )
    min_images: int = Field(default=500, ge=2, description="test images in common with the champion")
    unseen_images: bool = Field(
        default=False, description="also compare on test images that the champion was neither trained nor evaluated on"
    )
    min_gain: float = Field(default=1.0, gt=0, description="percentage points of the recall sum that must be exceeded")
    false_promotion_rate: float = Field(default=0.05, gt=0, lt=0.5, description="of all looks at one test set together")
    looks: int = Field(default=52, ge=1, description="comparisons that share one test set")
    max_drops: dict[Metric, float] = Field(description="percentage points by metric that must be ruled out")
    floors: dict[Metric, float] = Field(min_length=1, description="lowest value by metric, also of a first champion")
    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="one-sided, of max_drops and floors")
    resamples: int = Field(default=2000, ge=100, description="of the images, for the intervals of 'compare'")
    max_near_duplicates: float = Field(
        default=0.02, ge=0, le=1, description="share of test images that look like training images"
    )
    allow_dirty: bool = Field(default=False, description="accept models of uncommitted or unknown code")
    parity: float = Field(default=0.0001, gt=0, description="largest difference of an embedding from torch")
    backbone_parity: float = Field(
        default=0.001, gt=0, description="largest relative difference of a feature from torch"
    )
    max_latency_ratio: float = Field(
        default=2.0, gt=0, description="largest median time per input, relative to the champion's"
    )
    size_mb: float = Field(default=500.0, gt=0, description="largest size of all ONNX files")
    seed: int = Field(default=1, ge=0, description="of the confidence bounds")
    lock_timeout: float = Field(default=3600.0, ge=0, description="seconds to wait for another promotion")
    retrain_change: float = Field(
        default=0.05,
        ge=0,
        le=2,
        description="new and removed images, relative to the training images, after which 'retrain' trains",
    )


class PromoteParams(Params):
    """Parameters that the compiled pipeline passes."""

    policy: PromotionPolicy = Field(description="promotion.yaml")
    policy_file: str = Field(default="promotion.yaml", description="file of the policy, which reasons name")
    decide_only: bool = Field(
        description="log the decision, and leave the aliases: an accepted version becomes the champion with its release"
    )


COMPONENT = ClusterStep(
    name="promote",
    summary="Make the registered model the champion if it meets the promotion policy.",
    params=PromoteParams,
    inputs=("dataset", "features", "registration"),
    outputs=("promotion",),
    parameter_outputs=(ACCEPTED,),
    metrics=("promotion/decision.json",),
    side_effects=True,
)
