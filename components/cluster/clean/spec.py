"""Step clean: parameters."""

from typing import Annotated

from pydantic import Field

from runtime.spec import ClusterStep, ModelName, Params, StrictModel

Days = Annotated[int, Field(ge=1, description="days without need or change")]


class ReleasePolicy(StrictModel):
    """Previous releases of the registered model, and models of its previous versions."""

    days: Days
    versions: int = Field(ge=1, description="newest versions that keep their model, release and artifacts")


class ArtifactPolicy(StrictModel):
    """Artifacts of previous runs."""

    days: Days
    newest: int = Field(ge=1, description="artifacts of each name that stay, for the cache of Kubeflow")


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
    model: ModelName | None = Field(description="name in the registry; null leaves the registry alone")
    artifacts: list[str] = Field(description="folders of artifacts, on S3 or on a volume")
    checkpoints: list[str] = Field(description="folders of checkpoints on S3")
    delete: bool = Field(description="delete; otherwise only list")


COMPONENT = ClusterStep(
    name="clean",
    summary="List, or delete, models, releases, artifacts and checkpoints that nothing needs.",
    params=CleanParams,
    outputs=(),
    side_effects=True,
)
