"""Policies and settings of the steps that only a cluster runs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from runtime.spec import Alias, ModelName, StrictModel

Folder = Annotated[str, Field(pattern=r"^s3://[^/]+/.+")]
"""Address of a folder on S3."""
Days = Annotated[int, Field(ge=1, description="days without need or change")]
Change = Annotated[float, Field(ge=0, le=2)]
Size = Annotated[int, Field(ge=2)]
Metric = Annotated[
    str,
    Field(
        pattern=r"^(recall_sum|(caption_retrieval|image_retrieval)\.R@[1-9]\d*|pointing)$",
        min_length=1,
    ),
]


class CanarySettings(StrictModel):
    """Which services decide on a version before its promotion."""

    services: list[str] = Field(
        min_length=1, description="addresses, or dns+http://NAME:PORT for all pods of a name"
    )
    folder: Folder = Field(description="counts of the services, which outlive their replicas")
    hours: float = Field(
        ge=0, description="longest time to wait; less than the time-out of the step 'canary'"
    )


class ReleasePolicy(StrictModel):
    """Previous releases of the registered model, and models of its previous versions."""

    days: Days
    versions: int = Field(
        ge=1, description="newest versions that keep their model, release and artifacts"
    )


class ArtifactPolicy(StrictModel):
    """Artifacts of previous runs."""

    days: Days
    newest: int = Field(
        ge=1, description="artifacts of each name that stay, for the cache of Kubeflow"
    )


class CheckpointPolicy(StrictModel):
    """Checkpoints of trainings that were given up."""

    days: Days


class RetentionPolicy(StrictModel):
    """What is deleted, and when: the file ``retention.yaml``."""

    releases: ReleasePolicy
    artifacts: ArtifactPolicy
    checkpoints: CheckpointPolicy


class SampleSizeParams(StrictModel):
    """Largest samples."""

    reference_images: Size
    reference_queries: Size
    images: Size
    queries: Size


class MonitorPolicy(StrictModel):
    """When a difference from the training reference is reported: the file ``thresholds.yaml``."""

    false_alarm_rate: float = Field(gt=0, lt=1)
    permutations: int = Field(ge=100)
    least: Size
    keep_queries: bool | Literal["hashed"] = Field(
        default=False,
        description="whether the reference has the sentences of users, or their hashes",
    )
    keep_days: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="age at which it loses them"
    )
    sample: SampleSizeParams
    min_change: dict[str, Change] = Field(
        description="by name of a test, see ``bifocal.monitoring.TESTS``"
    )


class MonitorSettings(StrictModel):
    """What the flow ``monitor`` compares."""

    folder: Annotated[str, Field(pattern=r"^(s3://[^/]+)?/.+")] = Field(
        description="reference, results and pages: s3://..., or an absolute path for runs on one machine"
    )
    queries: list[str] = Field(description="logs of the service, or files of sentences")
    days: int = Field(ge=1, description="days to compare, up to yesterday")


class PromotionPolicy(StrictModel):
    """When a candidate becomes the champion: the file ``promotion.yaml``. Metrics are in
    percent."""

    model: ModelName = Field(description="name in the registry")
    candidate: Alias = Field(default="candidate", description="alias")
    champion: Alias = Field(default="champion", description="alias")
    previous: Alias = Field(default="previous", description="alias of the champion before")
    recall_at: list[Annotated[int, Field(ge=1)]] = Field(
        default=[1, 5, 10], min_length=1, description="K of the recall sum"
    )
    min_images: int = Field(
        default=500, ge=2, description="test images that neither model was trained on"
    )
    min_gain: float = Field(
        default=1.0,
        description="percentage points of the recall sum that must be exceeded; below 0, the loss "
        "that must be ruled out",
    )
    false_promotion_rate: float = Field(
        default=0.05, gt=0, lt=0.5, description="of all looks at one test set together"
    )
    looks: int = Field(default=52, ge=1, description="comparisons that share one test set")
    max_drops: dict[Metric, float] = Field(
        description="percentage points by metric that must be ruled out"
    )
    floors: dict[Metric, float] = Field(
        min_length=1, description="lowest value by metric, also of a first champion"
    )
    confidence: float = Field(
        default=0.95, gt=0.5, lt=1, description="one-sided, of max_drops and floors"
    )
    resamples: int = Field(
        default=2000, ge=100, description="of the images, for the intervals of 'compare'"
    )
    max_near_duplicates: float = Field(
        default=0.02, ge=0, le=1, description="share of test images that look like training images"
    )
    allow_dirty: bool = Field(
        default=False, description="accept models of uncommitted or unknown code"
    )
    parity: float = Field(
        default=0.0001, gt=0, description="largest difference of an embedding from torch"
    )
    backbone_parity: float = Field(
        default=0.001, gt=0, description="largest relative difference of a feature from torch"
    )
    max_latency_ratio: float = Field(
        default=2.0, gt=0, description="largest median time per input, relative to the champion's"
    )
    size_mb: float = Field(default=500.0, gt=0, description="largest size of all ONNX files")
    seed: int = Field(default=1, ge=0, description="of the confidence bounds")
    lock_timeout: float = Field(
        default=3600.0, ge=0, description="seconds to wait for another promotion"
    )

    retrain_change: float = Field(
        default=0.05,
        ge=0,
        le=2,
        description="new and removed images, relative to the last training's, after which "
        "'retrain' trains",
    )

    @model_validator(mode="after")
    def _check_aliases(self) -> Self:
        if len({self.candidate, self.champion, self.previous}) < 3:
            raise ValueError("candidate, champion and previous need three different aliases")
        return self
