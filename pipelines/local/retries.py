"""Retries of a failed pod, as Argo's controller decides on them.

Facts of argoproj/argo-workflows v4.1.0-rc2, workflow/controller/operator.go:1030-1206 (processNodeRetries).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["Succeeded", "Failed", "Error"]
"""Phase of a pod's node: ``Failed`` if a container failed or ran out of time, ``Error`` if the pod was deleted."""


@dataclass(frozen=True)
class RetryStrategy:
    """Retries of one task. Kubeflow sets no policy, which means OnFailure: a deleted pod is not retried.

    Durations are in seconds; ``max_duration`` counts from the start of the first attempt: no retry starts later, and a
    running one is killed. ``factor`` multiplies each delay; Argo reads it as an integer.
    """

    limit: int = 0
    duration: float = 0.0
    factor: int = 1
    max_duration: float = float("inf")

    @classmethod
    def parse(cls, policy: Mapping[str, Any]) -> "RetryStrategy":
        """Return the strategy of a compiled task's ``retryPolicy``."""
        factor = float(policy.get("backoffFactor", 0))
        if not factor.is_integer():
            raise ValueError(f"retryPolicy has backoffFactor {factor:g}: Argo accepts integers only (operator.go:1107)")
        maximum = policy.get("backoffMaxDuration")
        return cls(
            limit=int(policy.get("maxRetryCount", 0)),
            duration=_seconds(policy.get("backoffDuration", "0s")),
            factor=int(factor),
            max_duration=_seconds(maximum) if maximum else float("inf"),
        )

    def deadline(self, first_start: float) -> float:
        """Return the time at which retries are killed; the first attempt has no such limit."""
        return first_start + self.max_duration

    def delay(self, attempts: int, phase: Phase, first_start: float, last_end: float) -> tuple[float, str]:
        """Return the seconds to wait after ``attempts`` attempts, and the reason if there is no next one."""
        if not self.limit:
            return 0.0, "it has no retries"
        deadline = self.deadline(first_start)
        if last_end > deadline:
            return 0.0, "Max duration limit exceeded"
        wait = self.duration * (self.factor ** (attempts - 1) if self.factor > 0 else 1)
        if last_end + wait > deadline:
            return 0.0, "Backoff would exceed max duration limit"
        if phase == "Error":
            return 0.0, "a deleted pod is not retried (retryPolicy OnFailure)"
        if attempts > self.limit:
            return 0.0, "No more retries left"
        return wait, ""


def _seconds(duration: str) -> float:
    # Kubeflow passes only whole seconds (argocompiler/container.go:631).
    return float(int(float(duration.removesuffix("s"))))
