"""Policies of an operator: ``promotion.yaml`` and ``thresholds.yaml``."""

from pathlib import Path

from components.cluster.monitor.spec import MonitorPolicy
from components.cluster.promote.spec import PromotionPolicy
from pipelines.yaml_model import load_yaml_model

PROMOTION, THRESHOLDS = (Path(__file__).with_name(name) for name in ("promotion.yaml", "thresholds.yaml"))


def load_promotion(path: Path = PROMOTION) -> PromotionPolicy:
    """Return when a candidate becomes the champion; raise ``ValueError`` for an invalid entry."""
    return load_yaml_model(path, PromotionPolicy.model_validate)


def load_thresholds(path: Path = THRESHOLDS) -> MonitorPolicy:
    """Return when a difference from the training is reported; raise ``ValueError`` for an invalid entry."""
    from bifocal.monitoring.drift import Thresholds  # takes a second to import

    policy = load_yaml_model(path, MonitorPolicy.model_validate)
    Thresholds.of(policy.model_dump())  # check the names and the permutations
    return policy
