"""``thresholds.yaml``: when a difference from the training reference is reported."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from bifocal.monitoring.drift import Thresholds
from pipelines.yaml_model import load_yaml_model
from runtime.spec import StrictModel

FILE = Path(__file__).with_name("thresholds.yaml")
Name = Literal[
    "images",
    "queries",
    "unknown_words",
    "languages",
    "nothing_found",
    "calibration",
    "lost_probes",
    "unusable_images",
]
Change = Annotated[float, Field(ge=0, le=2)]
Size = Annotated[int, Field(ge=2)]


class SampleSizes(StrictModel):
    """Largest samples."""

    reference_images: Size
    reference_queries: Size
    images: Size
    queries: Size


class MonitorPolicy(StrictModel):
    """Contents of the file."""

    false_alarm_rate: float = Field(gt=0, lt=1)
    permutations: int = Field(ge=100)
    least: Size
    sample: SampleSizes
    least_change: dict[Name, Change]

    @model_validator(mode="after")
    def _check(self) -> "MonitorPolicy":
        """Raise ``ValueError`` if the permutations are too few for the rate."""
        self.thresholds()
        return self

    def thresholds(self) -> Thresholds:
        """Return the values that the tests read."""
        changes = {str(name): change for name, change in self.least_change.items()}
        return Thresholds(self.false_alarm_rate, self.permutations, self.least, changes)


def load(path: Path = FILE) -> MonitorPolicy:
    """Read the file.

    Raises:
        ValueError: the file is not YAML, or an entry is invalid.
    """
    return load_yaml_model(path, MonitorPolicy.model_validate)
