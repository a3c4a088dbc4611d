"""Declarations of the steps that only a cluster runs, in the order of their names: parameters,
inputs and outputs."""

from typing import Any

from pydantic import Field

from components.cluster.policies import (
    CanarySettings,
    MonitorPolicy,
    MonitorSettings,
    PromotionPolicy,
    RetentionPolicy,
)
from runtime.spec import Alias, ClusterStep, ModelName, Params

VERDICT = "verdict"
"""Output: ``promote``, ``withdraw``, or ``wait`` if the time was too short for a decision."""


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
    optional: bool = Field(
        default=False, description="accept that there is no version, or no release of it"
    )


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


ACCEPTED = "accepted"
"""Output: ``"true"`` if the version meets the policy, else ``"false"``."""


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
