"""``promotion.yaml``: when a candidate becomes the champion."""

from pathlib import Path

from components.cluster.promote.spec import PromotionPolicy
from pipelines.yaml_model import load_yaml_model

FILE = Path(__file__).with_name("promotion.yaml")


def load(path: Path = FILE) -> PromotionPolicy:
    """Read the file.

    Raises:
        ValueError: the file is not YAML, or an entry is invalid.
    """
    return load_yaml_model(path, PromotionPolicy.model_validate)
