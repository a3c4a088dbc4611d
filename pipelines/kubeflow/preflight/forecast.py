"""Check of the forecast of ``plan``: no step gets less memory or time than it needs."""

import math
from collections.abc import Iterator
from typing import Any

from pipelines.kubeflow.preflight.subject import Subject
from pipelines.kubeflow.resources import Resources
from pipelines.plan.make import StagePlan
from pipelines.plan.show import duration, size

MEMORY_HEADROOM, TIME_HEADROOM = 1.25, 2.0
"""Factors between the forecast and a proposed value: the cluster is another machine."""
LONGEST_SHARD = 6 * 3600
"""Seconds of work above which more shards are proposed."""
MOST_SHARDS = 100
GIB = 2**30
UNITS: dict[str, int] = {f"{letter}{suffix}": base**power for power, letter in enumerate("KMGTPE", start=1)
         for suffix, base in (("", 1000), ("i", 1024))}  # fmt: skip


def check_forecast(subject: Subject) -> Iterator[str]:
    """Yield the steps that their resources would kill; nothing without a plan."""
    for stage in subject.plan:
        if values := proposal(stage, subject.resources):
            step = subject.resources.for_step(stage.name)
            seconds = "unknown" if stage.seconds is None else duration(stage.seconds.value)
            yield (
                f"{stage.name} needs {seconds} and {size(stage.memory)} of memory by the plan, and gets "
                f"{duration(step.timeout)} in {step.shards} shards and {step.memory}: set steps.{stage.name} to "
                f"{values}, or write them by plan --fit"
            )


def proposal(stage: StagePlan, resources: Resources) -> dict[str, Any]:
    """Return the values of ``resources.yaml`` that a step needs, as far as its own are less than the forecast."""
    step, values = resources.for_step(stage.name), dict[str, Any]()
    if stage.memory > to_bytes(step.memory):
        values["memory"] = f"{math.ceil(MEMORY_HEADROOM * stage.memory / GIB)}Gi"
    if stage.seconds is None:
        return values
    shards = step.shards if stage.shardable else 1
    if stage.seconds.value / shards > step.timeout:
        if stage.shardable and stage.seconds.value / shards > LONGEST_SHARD:
            shards = min(MOST_SHARDS, math.ceil(stage.seconds.value / LONGEST_SHARD))
            values["shards"] = shards
        values["timeout"] = math.ceil(TIME_HEADROOM * stage.seconds.value / shards)
    return values


def to_bytes(quantity: str) -> int:
    """Return a quantity of Kubernetes, such as ``4Gi``, in bytes."""
    number = quantity.rstrip("KMGTPEi")
    return int(number) * UNITS.get(quantity[len(number) :], 1)
