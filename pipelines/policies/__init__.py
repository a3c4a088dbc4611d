"""Policies of an operator: ``promotion.yaml``, ``thresholds.yaml``, ``canary.yaml``,
``retention.yaml``."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from components.cluster.policies import MonitorPolicy, PromotionPolicy, RetentionPolicy
from runtime.parameters import read_yaml

if TYPE_CHECKING:
    from bifocal.serving.canary.decision import Rule

T = TypeVar("T")


def load_yaml_model(path: Path, validate: Callable[[Any], T]) -> T:
    """Return the YAML or JSON in ``path``, validated by pydantic; the ``ValueError`` lists all
    invalid entries."""
    values = read_yaml(path)
    try:
        return validate(values)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, entry['loc'])) or 'whole file'}: "
            f"{entry['msg'].removeprefix('Value error, ')}"
            for entry in error.errors()
        ]
        raise ValueError(f"{path.name}:\n  " + "\n  ".join(problems)) from error


PROMOTION, THRESHOLDS, CANARY, RETENTION = (
    Path(__file__).with_name(name)
    for name in ("promotion.yaml", "thresholds.yaml", "canary.yaml", "retention.yaml")
)


def shown_path(path: Path) -> str:
    """Return a path for messages: relative to the root of this code, if it is below it."""
    root = Path(__file__).parents[2]
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def load_promotion(path: Path = PROMOTION) -> PromotionPolicy:
    """Return when a candidate becomes the champion; raise ``ValueError`` for an invalid entry."""
    return load_yaml_model(path, PromotionPolicy.model_validate)


def load_thresholds(path: Path = THRESHOLDS) -> MonitorPolicy:
    """Return when a difference from the training is reported; raise ``ValueError`` for an invalid
    entry."""
    from bifocal.monitoring.drift import Thresholds  # takes a second to import

    policy = load_yaml_model(path, MonitorPolicy.model_validate)
    Thresholds.of(policy.model_dump())  # check the names and the permutations
    return policy


def load_retention(path: Path = RETENTION) -> RetentionPolicy:
    """Return what is deleted, and when; raise ``ValueError`` for an invalid entry."""
    return load_yaml_model(path, RetentionPolicy.model_validate)


def load_canary(path: Path = CANARY) -> "Rule":
    """Return when a candidate of a service is promoted or withdrawn; raise ``ValueError`` for an
    invalid entry."""
    from pydantic import TypeAdapter

    from bifocal.serving.canary.decision import Rule  # imports numpy

    return load_yaml_model(path, TypeAdapter(Rule).validate_python)
