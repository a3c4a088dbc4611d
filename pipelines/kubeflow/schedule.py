"""Declared schedules, brought about on the cluster: what is right is left alone, what differs is replaced."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from kfp import Client
from pydantic import AfterValidator, Field, TypeAdapter

from pipelines.kubeflow.client import EXPERIMENT
from pipelines.kubeflow.cron import check_cron
from pipelines.yaml_model import declared
from runtime.spec import StrictModel

FILE = Path(__file__).with_name("schedules.yaml")
PREFIX = "bifocal-"
PAGE = 100


class Schedule(StrictModel):
    """One entry of ``schedules.yaml``."""

    cron: Annotated[str, AfterValidator(check_cron)]
    recipes: list[str] = Field(description="files that overlay params.yaml")
    enabled: bool
    concurrent: int = Field(ge=1, le=10, description="runs of it at once")
    catch_up: bool = Field(description="run what was missed while the cluster was down")


@dataclass(frozen=True)
class Change:
    """What is to be done to the schedule ``name``.

    Attributes:
        old: ids on the server that go.
        text: the compiled pipeline that comes.
    """

    kind: Literal["create", "replace", "delete", "keep"]
    name: str
    old: tuple[str, ...]
    description: str = ""
    text: str = ""


def read(path: Path = FILE) -> dict[str, Schedule]:
    """The file.

    Raises:
        ValueError: it is no YAML, or an entry is wrong; nothing was sent anywhere.
    """
    names = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")]
    return declared(path, lambda values: TypeAdapter(dict[names, Schedule]).validate_python(values or {}))


def changes(schedules: dict[str, Schedule], client: Client, compiled: Callable[[list[str]], str]) -> list[Change]:
    """What must be done for the server to have ``schedules`` and no others of this project.

    Args:
        compiled: the pipeline of the given recipes.
    """
    there: dict[str, list[Any]] = {}
    for run in _recurring_runs(client):
        if run.display_name.startswith(PREFIX):
            there.setdefault(run.display_name.removeprefix(PREFIX), []).append(run)
    wanted = []
    for name, schedule in schedules.items():
        try:
            text = compiled(schedule.recipes)
        except ValueError as error:
            raise ValueError(f"schedule {name!r}: {error}") from error
        # The server can be asked for a schedule, not for its pipeline: the digest stands for that.
        digest = sha256((schedule.model_dump_json() + text).encode()).hexdigest()[:32]
        description = f"pipelines/kubeflow/schedules.yaml {digest}"
        found = there.pop(name, [])
        same = [
            run for run in found if run.description == description and (run.status == "ENABLED") == schedule.enabled
        ]
        old = tuple(run.recurring_run_id for run in found if run not in same[:1])
        kind: Literal["create", "replace", "keep"] = "keep" if same and not old else "replace" if found else "create"
        wanted.append(Change(kind, name, old, description, "" if same else text))
    gone = [Change("delete", name, tuple(run.recurring_run_id for run in runs)) for name, runs in there.items()]
    return wanted + gone


def apply(schedules: dict[str, Schedule], found: list[Change], client: Client) -> None:
    """Do ``found``. The new comes before the old goes, so that a failure between them leaves two, not none."""
    experiment = client.create_experiment(EXPERIMENT).experiment_id if any(change.text for change in found) else None
    for change in found:
        if change.text:
            schedule = schedules[change.name]
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "pipeline.yaml"
                file.write_text(change.text)
                client.create_recurring_run(
                    experiment,
                    PREFIX + change.name,
                    description=change.description,
                    cron_expression=schedule.cron,
                    max_concurrency=schedule.concurrent,
                    no_catchup=not schedule.catch_up,
                    pipeline_package_path=str(file),
                    enabled=schedule.enabled,
                )
        for run_id in change.old:
            client.delete_recurring_run(run_id)


def listed(client: Client) -> list[str]:
    """One line for each schedule on the server."""
    return [
        f"{run.display_name}  {run.trigger.cron_schedule.cron}  {run.status.lower()}"
        for run in _recurring_runs(client)
        if run.display_name.startswith(PREFIX)
    ]


def _recurring_runs(client: Client) -> Iterator[Any]:
    token = ""
    while True:
        page = client.list_recurring_runs(page_token=token, page_size=PAGE)
        yield from page.recurring_runs or []
        token = page.next_page_token
        if not token:
            return
