"""``thresholds.yaml``: when a difference from the training reference is reported."""

from pathlib import Path

from components.cluster.monitor.spec import MonitorPolicy
from pipelines.yaml_model import load_yaml_model

FILE = Path(__file__).with_name("thresholds.yaml")


def load(path: Path = FILE) -> MonitorPolicy:
    """Read the file.

    Raises:
        ValueError: the file is not YAML, or an entry is invalid.
    """
    return load_yaml_model(path, MonitorPolicy.model_validate)
