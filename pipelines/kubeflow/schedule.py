"""Schedules: conflicts, and the changes between declared schedules and those of the server."""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

from kfp import Client
from pydantic import AfterValidator, Field, TypeAdapter

from bifocal.durable import json_digest
from pipelines.kubeflow.client import PREFIX, Target, experiment_id, namespace_of, upload_version
from pipelines.kubeflow.cron import check_cron, start_days, start_seconds
from pipelines.kubeflow.flows import FlowName
from pipelines.policies import load_yaml_model
from runtime.spec import StrictModel

FILE = Path(__file__).with_name("schedules.yaml")
PAGE_SIZE = 100
READS = ("monitor",)
"""Flows that change neither releases nor artifacts."""
YEAR = 2028
"""A leap year, whose starts are compared."""
RUNNING = ["PENDING", "RUNNING", "PAUSED", "CANCELING"]


class Schedule(StrictModel):
    """One entry of ``schedules.yaml``."""

    cron: Annotated[str, AfterValidator(check_cron)]
    flow: FlowName = "train"
    recipes: list[str] = Field(description="files that overlay params.yaml")
    enabled: bool
    max_concurrency: int = Field(ge=1, le=10, description="runs of this schedule at once")
    catch_up: bool = Field(
        description="whether runs missed during a downtime are started afterwards"
    )
    hours: float = Field(
        default=2.0,
        gt=0,
        le=24,
        description="longest run: no other that changes releases may start in it",
    )


@dataclass(frozen=True)
class ScheduleChange:
    """Change of the schedule ``name``: recurring runs to delete, and compiled pipeline to create
    ("" if none)."""

    action: Literal["create", "replace", "delete", "keep"]
    name: str
    old_ids: tuple[str, ...]
    description: str = ""
    text: str = ""


def load(path: Path = FILE) -> dict[str, Schedule]:
    """Read the file; raise ``ValueError`` for an invalid entry, or for two that are in conflict."""
    names = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    checked = Annotated[dict[names, Schedule], AfterValidator(check_conflicts)]
    return load_yaml_model(path, lambda values: TypeAdapter(checked).validate_python(values or {}))


def check_conflicts(schedules: dict[str, Schedule]) -> dict[str, Schedule]:
    """Return the schedules; raise ``ValueError`` if a run starts while one of another schedule
    changes a release."""
    writing = [
        (name, entry)
        for name, entry in schedules.items()
        if entry.enabled and entry.flow not in READS
    ]
    for one, other in combinations(writing, 2):
        for (name, first), (later, second) in ((one, other), (other, one)):
            day, start = _overlap(first, second) or (None, 0)
            if day is not None:
                raise ValueError(
                    f"{later} starts on {day:%A} at {timedelta(seconds=start)} within the "
                    f"{first.hours:g} hours of {name}: both change releases; choose another "
                    "time, or fewer 'hours'"
                )
    return schedules


def _overlap(first: Schedule, second: Schedule) -> tuple[date, int] | None:
    """Return the first day and second of it at which ``second`` starts within a run of
    ``first``."""
    starts, others, days = (
        start_seconds(first.cron),
        start_seconds(second.cron),
        set(start_days(second.cron, YEAR)),
    )
    for day in start_days(first.cron, YEAR):
        for shift in (0, 1):
            if (then := day + timedelta(days=shift)) in days:
                for start in others:
                    # The last start before it, or at the same time, has the run that it may meet.
                    before = bisect_right(starts, start + 86_400 * shift) - 1
                    if before >= 0 and start + 86_400 * shift - starts[before] < 3600 * first.hours:
                        return then, start
    return None


def plan(
    schedules: dict[str, Schedule], target: Target, compile_entry: Callable[[Schedule], str]
) -> list[ScheduleChange]:
    """List the changes after which the server has ``schedules`` and no others of this project."""
    on_server: dict[str, list[Any]] = {}
    for run in _recurring_runs(target.client, target.prefix):
        on_server.setdefault(run.display_name.removeprefix(target.prefix), []).append(run)
    changes = []
    for name, schedule in schedules.items():
        try:
            text = compile_entry(schedule)
        except ValueError as error:
            raise ValueError(f"schedule {name!r}: {error}") from error
        # The server does not return the pipeline of a schedule, so its digest is kept in the
        # description.
        settings = [
            schedule.model_dump(),
            text,
            target.resources.service_account,
            target.resources.pipeline_root,
        ]
        digest = json_digest(settings)[:32]
        description = f"commit {target.revision}, pipelines/kubeflow/schedules.yaml {digest}"
        existing = on_server.pop(name, [])
        same = [
            run
            for run in existing
            if run.description == description and (run.status == "ENABLED") == schedule.enabled
        ]
        old_ids = tuple(run.recurring_run_id for run in existing if run not in same[:1])
        action: Literal["create", "replace", "keep"] = "replace" if existing else "create"
        if same and not old_ids:
            action = "keep"
        changes.append(ScheduleChange(action, name, old_ids, description, "" if same else text))
    for name, runs in on_server.items():
        changes.append(ScheduleChange("delete", name, tuple(run.recurring_run_id for run in runs)))
    return changes


def apply(
    schedules: dict[str, Schedule], changes: list[ScheduleChange], target: Target
) -> list[str]:
    """Apply ``changes``; return the names of schedules that are paused instead of deleted, for a
    run in progress: Kubeflow deletes the workflows with the schedule. The new one is created first:
    a failure leaves two, never none.
    """
    client, resources, paused = target.client, target.resources, []
    experiment = experiment_id(client) if any(change.text for change in changes) else None
    for change in changes:
        if change.text:
            schedule, version = (
                schedules[change.name],
                upload_version(client, change.text, target.revision),
            )
            client.create_recurring_run(
                experiment,
                target.prefix + change.name,
                description=change.description,
                cron_expression=schedule.cron,
                max_concurrency=schedule.max_concurrency,
                no_catchup=not schedule.catch_up,
                pipeline_id=version.pipeline_id,
                version_id=version.pipeline_version_id,
                enabled=schedule.enabled,
                pipeline_root=resources.pipeline_root,
                service_account=resources.service_account,
            )
        for run_id in change.old_ids:
            if _is_running(client, run_id):
                client.disable_recurring_run(run_id)
                paused.append(change.name)
            else:
                client.delete_recurring_run(run_id)
    return paused


def list_schedules(client: Client, prefix: str) -> list[str]:
    """Return one line for each schedule of this project on the server."""
    runs = _recurring_runs(client, prefix)
    return [
        f"{run.display_name}  {run.trigger.cron_schedule.cron}  {run.status.lower()}"
        for run in runs
    ]


def prefix_of(project: str | None) -> str:
    """Return the prefix of the names of a project's schedules; names of projects and of schedules
    have no dot."""
    return f"{project}." if project else PREFIX


def _is_running(client: Client, recurring_run_id: str) -> bool:
    """Whether a run of the schedule is in progress."""
    predicates = [
        {"operation": "EQUALS", "key": "recurring_run_id", "stringValue": recurring_run_id},
        {"operation": "IN", "key": "state", "stringValues": {"values": RUNNING}},
    ]
    page = client.list_runs(
        namespace=namespace_of(client), filter=json.dumps({"predicates": predicates})
    )
    return bool(page.runs)


def _recurring_runs(client: Client, prefix: str) -> Iterator[Any]:
    token, namespace = "", namespace_of(client)
    while True:
        page = client.list_recurring_runs(
            page_token=token, page_size=PAGE_SIZE, namespace=namespace
        )
        yield from (run for run in page.recurring_runs or [] if run.display_name.startswith(prefix))
        token = page.next_page_token
        if not token:
            return
