"""``thresholds.yaml``: when a difference from the training reference is reported."""

from pathlib import Path

from components.cluster.monitor.spec import MonitorPolicy
from pipelines.yaml_model import load_yaml_model

FILE = Path(__file__).with_name("thresholds.yaml")


def load(path: Path = FILE) -> MonitorPolicy:
    """Read the file.

    Raises:
        ValueError: the file is not YAML, an entry is invalid, or the permutations are too few for the false alarm rate.
    """
    from components.cluster.monitor.week import thresholds_of  # takes a second to import

    policy = load_yaml_model(path, MonitorPolicy.model_validate)
    thresholds_of(policy)
    return policy
