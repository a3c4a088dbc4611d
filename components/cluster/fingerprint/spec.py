"""Step fingerprint: parameters and outputs."""

from pydantic import Field

from runtime.spec import ClusterStep, Params

MLFLOW_PAGE = "mlflow_run"
"""Output with the address of the pipeline run's page in MLflow; no step reads it, so no cache key holds it."""


class FingerprintParams(Params):
    """Parameters that the compiled pipeline passes."""

    sources: dict[str, list[str]] = Field(
        description="user files and folders of each stage: paths relative to the repository's root, or s3:// addresses"
    )


COMPONENT = ClusterStep(
    name="fingerprint",
    summary="Find the versions of the user's files, so that a run repeats exactly the stages whose files changed.",
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
