"""Preflight: whether a cluster could run the compiled pipeline, checked before a run or a schedule is created."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from pipelines.kubeflow.preflight.buckets import check_buckets
from pipelines.kubeflow.preflight.images import check_images
from pipelines.kubeflow.preflight.permissions import check_permissions
from pipelines.kubeflow.preflight.repository import check_repository
from pipelines.kubeflow.preflight.subject import Subject
from runtime.redaction import redact

CHECKS: Mapping[str, Callable[[Subject], Iterable[str]]] = {
    "images": check_images,
    "repository": check_repository,
    "buckets": check_buckets,
    "permissions": check_permissions,
}
ALL = "all"


def check_all(subject: Subject, skipped: Collection[str] = ()) -> None:
    """Run the checks that are not ``skipped`` (names, or ``ALL``); raise ``ValueError`` with all problems."""
    checks: dict[str, Any] = {} if ALL in skipped else {name: CHECKS[name] for name in CHECKS if name not in skipped}
    problems = [f"{name}: {redact(problem)}" for name, check in checks.items() for problem in check(subject)]
    if problems:
        lines = "\n  ".join(problems)
        raise ValueError(
            f"the cluster cannot run this pipeline:\n  {lines}\n"
            "set the values in a file for --resources; --skip-check NAME omits a check that cannot be made from here"
        )
