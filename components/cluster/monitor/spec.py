"""Step monitor: parameters, inputs and outputs."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.spec import ClusterStep, Params, StrictModel

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
        default=False, description="whether the reference has the sentences of users, or their hashes"
    )
    keep_days: Annotated[int, Field(ge=0)] | None = Field(default=None, description="age at which it loses them")
    sample: SampleSizeParams
    min_change: dict[str, Change] = Field(description="by name of a test, see ``bifocal.monitoring.TESTS``")


class MonitorParams(Params):
    """Parameters that the compiled pipeline passes."""

    policy: MonitorPolicy = Field(description="thresholds.yaml")
    folder: str = Field(description="s3:// address of the reference, the results and the pages")
    queries: list[str] = Field(description="s3:// addresses of logs of the service, or of files of sentences")
    days: int = Field(ge=1, description="days to compare, up to yesterday")


COMPONENT = ClusterStep(
    name="monitor",
    summary="Compare new images and queries with the training, and send a notice if they differ.",
    params=MonitorParams,
    inputs=("onnx", "collection", "index"),
    outputs=("monitoring",),
    pages=("monitoring/index.html",),
    side_effects=True,
)
