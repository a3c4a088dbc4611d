"""Declarations of the steps that only a cluster runs, in the order of their names: parameters,
inputs and outputs."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from runtime.spec import Alias, ClusterStep, ModelName, Params, StrictModel

Folder = Annotated[str, Field(pattern=r"^s3://[^/]+/.+")]
"""Address of a folder on S3."""
VERDICT = "verdict"
"""Output: ``promote``, ``withdraw``, or ``wait`` if the time was too short for a decision."""


class CanarySettings(StrictModel):
    """Which services decide on a version before its promotion."""

    services: list[str] = Field(
        min_length=1, description="addresses, or dns+http://NAME:PORT for all pods of a name"
    )
    folder: Folder = Field(description="counts of the services, which outlive their replicas")
    hours: float = Field(
        ge=0, description="longest time to wait; less than the time-out of the step 'canary'"
    )


class CanaryParams(Params, CanarySettings):
    """Parameters that the compiled pipeline passes."""

    rule: dict[str, Any] = Field(description="canary.yaml")
    champion: Alias = Field(description="alias")
    lock_timeout: float = Field(ge=0, description="seconds to wait for another promotion")


CANARY = ClusterStep(
    name="canary",
    summary="Wait for the searches of clients, and decide whether the registered version may "
    "be promoted.",
    params=CanaryParams,
    inputs=("registration",),
    outputs=("canary",),
    parameter_outputs=(VERDICT,),
    metrics=("canary/decision.json",),
    side_effects=True,
)

Days = Annotated[int, Field(ge=1, description="days without need or change")]


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


class CleanParams(Params):
    """Parameters that the compiled pipeline passes."""

    policy: RetentionPolicy = Field(description="retention.yaml")
    model: ModelName | None = Field(
        description="name in the registry; null leaves the registry alone"
    )
    artifacts: list[str] = Field(description="folders of artifacts, on S3 or on a volume")
    checkpoints: list[str] = Field(description="folders of checkpoints on S3")
    delete: bool = Field(description="delete; otherwise only list")


CLEAN = ClusterStep(
    name="clean",
    summary="List, or delete, models, releases, artifacts and checkpoints that nothing needs.",
    params=CleanParams,
    outputs=(),
    side_effects=True,
)


class FetchParams(Params):
    """Parameters that the compiled pipeline passes."""

    paths: list[str] = Field(
        description="files and folders that DVC or git tracks, relative to the repository's root"
    )


FETCH = ClusterStep(
    name="fetch",
    summary="Fetch the user files of a stage from a repository, as DVC or git tracks them.",
    params=FetchParams,
    outputs=("user_files",),
    large_outputs=("user_files",),
)


class FetchReleaseParams(Params):
    """Parameters that the compiled pipeline passes."""

    model: ModelName = Field(description="name in the registry")


FETCH_RELEASE = ClusterStep(
    name="fetch_release",
    summary="Fetch the model, the collection, the index and the hubness bank of a release.",
    params=FetchReleaseParams,
    outputs=("embedding", "onnx", "collection", "index", "registration"),
)

CHANGED = "changed"
"""Output: ``"true"`` if a training is due, else ``"false"``."""


class FindChangesParams(Params):
    """Parameters that the compiled pipeline passes."""

    model: ModelName = Field(description="name in the registry")
    alias: Alias = Field(description="alias of the version that was registered last")
    promote: bool = Field(
        description="whether the flow promotes: then an accepted version without promotion is "
        "unfinished"
    )
    policy: "PromotionPolicy" = Field(description="promotion.yaml")


FIND_CHANGES = ClusterStep(
    name="find_changes",
    summary="Compare the dataset with the last training's dataset, and say whether to train again.",
    params=FindChangesParams,
    inputs=("dataset",),
    outputs=(),
    parameter_outputs=(CHANGED,),
    side_effects=True,
)


class FindReleaseParams(Params):
    """Parameters that the compiled pipeline passes."""

    model: ModelName = Field(description="name in the registry")
    alias: Alias = Field(description="alias of the version")


FIND_RELEASE = ClusterStep(
    name="find_release",
    summary="Find the version with an alias, and its release.",
    params=FindReleaseParams,
    outputs=(),
    parameter_outputs=("version", "release"),
    side_effects=True,
)

MLFLOW_PAGE = "mlflow_run"
"""Output with the address of the pipeline run's page in MLflow; no step reads it, so no cache key
holds it."""


class FingerprintParams(Params):
    """Parameters that the compiled pipeline passes."""

    sources: dict[str, list[str]] = Field(
        description="user files and folders of each stage: paths relative to the repository's "
        "root, or s3:// addresses"
    )


FINGERPRINT = ClusterStep(
    name="fingerprint",
    summary="Find the versions of the user's files, so that a run repeats exactly the stages "
    "whose files changed.",
    params=FingerprintParams,
    outputs=(),
    # The stages that may have user files; a stage without any has "".
    parameter_outputs=(
        "prepare_dataset",
        "extract_features",
        "vectorize_captions",
        "train_embedding",
        "train_ranking_head",
        "evaluate",
        "embed_collection",
        MLFLOW_PAGE,
    ),
    side_effects=True,
)


MERGE = ClusterStep(
    name="merge",
    summary="Merge the shards of extract_features into one feature store, without copying "
    "their files.",
    params=Params,
    outputs=("features",),
    large_outputs=("features",),
)


MERGE_COLLECTION = ClusterStep(
    name="merge_collection",
    summary="Merge the shards of embed_collection into one collection, without copying their "
    "files.",
    params=Params,
    outputs=("collection",),
)

Change = Annotated[float, Field(ge=0, le=2)]
Size = Annotated[int, Field(ge=2)]


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


class MonitorParams(Params, MonitorSettings):
    """Parameters that the compiled pipeline passes."""

    policy: MonitorPolicy = Field(description="thresholds.yaml")


MONITOR = ClusterStep(
    name="monitor",
    summary="Compare new images and queries with the training, and send a notice if they differ.",
    params=MonitorParams,
    inputs=("onnx", "collection", "index"),
    outputs=("monitoring",),
    pages=("monitoring/index.html",),
    side_effects=True,
)


NOTIFY = ClusterStep(
    name="notify",
    summary="Report a failed run to a web hook.",
    params=Params,
    outputs=(),
    side_effects=True,
)


Metric = Annotated[
    str,
    Field(
        pattern=r"^(recall_sum|(caption_retrieval|image_retrieval)\.R@[1-9]\d*|pointing)$",
        min_length=1,
    ),
]
ACCEPTED = "accepted"
"""Output: ``"true"`` if the version meets the policy, else ``"false"``."""


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
        default=1.0, gt=0, description="percentage points of the recall sum that must be exceeded"
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

    @model_validator(mode="after")
    def _check_aliases(self) -> Self:
        if len({self.candidate, self.champion, self.previous}) < 3:
            raise ValueError("candidate, champion and previous need three different aliases")
        return self

    retrain_change: float = Field(
        default=0.05,
        ge=0,
        le=2,
        description="new and removed images, relative to the last training's, after which "
        "'retrain' trains",
    )


class PromoteParams(Params):
    """Parameters that the compiled pipeline passes."""

    policy: PromotionPolicy = Field(description="promotion.yaml")
    policy_file: str = Field(
        default="promotion.yaml", description="file of the policy, which reasons name"
    )
    decide_only: bool = Field(
        description="log the decision, and leave the aliases: an accepted version becomes the "
        "champion with its release"
    )


PROMOTE = ClusterStep(
    name="promote",
    summary="Make the registered model the champion if it meets the promotion policy.",
    params=PromoteParams,
    inputs=("dataset", "features", "registration"),
    outputs=("promotion",),
    parameter_outputs=(ACCEPTED,),
    metrics=("promotion/decision.json",),
    side_effects=True,
)


class PushParams(Params):
    """Parameters that the compiled pipeline passes."""

    values: dict[str, Any] = Field(description="all values of params.yaml, as the run used them")


PUSH = ClusterStep(
    name="push",
    summary="Push the artifacts of a run to the DVC remote, and a branch with its dvc.lock to "
    "the git repository.",
    params=PushParams,
    # Without inputs here: the compiled pipeline passes every artifact that its stages write.
    outputs=("dvc_lock",),
    side_effects=True,
)


RELEASE = ClusterStep(
    name="release",
    summary="Add collection, index and hubness bank to the registered version of their model.",
    params=Params,
    inputs=("embedding", "onnx", "collection", "index", "registration"),
    outputs=("released",),
    side_effects=True,
)


class TrainDistributedParams(Params):
    """Part of the job that its result depends on; ``pipelines.kubeflow.compile`` sets it from
    ``resources.yaml``."""

    values: dict[str, Any] = Field(description="section train_embedding of params.yaml")
    nodes: int = Field(ge=2, description="number of machines")
    image: str = Field(description="container image of every machine")


TRAIN_DISTRIBUTED = ClusterStep(
    name="train_distributed",
    summary="Run train_embedding on several machines, with a TrainJob of Kubeflow's Trainer.",
    params=TrainDistributedParams,
    inputs=("dataset", "features", "text", "sorter"),
    outputs=("embedding",),
    code_modules=("components.train_embedding.spec", "components.train_embedding.run"),
)
