"""Schedules on a cluster: created, kept, replaced, deleted; one fires, and no run of a schedule
overlaps another."""

import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from cluster import ROOT, SMALL, Cluster

FILE = Path("pipelines/kubeflow/schedules.yaml")
EVERY_MINUTE = "0 * * * * *"
MODEL = f"scheduled-{uuid4().hex[:8]}"
ACTIONS = ("create ", "keep ", "replace ", "delete ")

pytestmark = pytest.mark.timeout(0)


class Schedules:
    """The schedules of the clone, which ``schedule apply`` puts on the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        recipe = cluster.checkout / "model.yaml"
        recipe.write_text(yaml.safe_dump({"register_model": {"model": MODEL}}))
        self.declared: dict[str, Any] = yaml.safe_load((ROOT / FILE).read_text())
        for entry in self.declared.values():
            entry["recipes"] = [SMALL[1], str(recipe)]

    def apply(self) -> list[str]:
        """Apply the declared schedules; return the changes."""
        (self.cluster.checkout / FILE).write_text(yaml.safe_dump(self.declared))
        lines = self.cluster.pipelines("schedule", "apply", *self.cluster.options).splitlines()
        return sorted(" ".join(line.split()) for line in lines if line.startswith(ACTIONS))

    def on_cluster(self) -> dict[str, dict[str, Any]]:
        found = self.cluster.get("recurringruns?page_size=100").get("recurringRuns", [])
        return {run["display_name"].removeprefix("bifocal-"): run for run in found}


@pytest.fixture(scope="module")
def schedules(cluster: Cluster) -> Iterator[Schedules]:
    """No schedule on the cluster, before and after the tests."""
    schedules = Schedules(cluster)
    declared, schedules.declared = schedules.declared, {}
    schedules.apply()
    schedules.declared = declared
    yield schedules
    schedules.declared = {}
    schedules.apply()
    assert not schedules.on_cluster()


def test_schedules_are_created_kept_replaced_and_deleted(
    cluster: Cluster, schedules: Schedules
) -> None:
    assert schedules.apply() == [
        f"create {name}" for name in ("clean", "monitor", "refresh", "retrain")
    ]
    assert {run["status"] for run in schedules.on_cluster().values()} == {"ENABLED"}
    assert schedules.apply() == [
        f"keep {name}" for name in ("clean", "monitor", "refresh", "retrain")
    ]
    previous = schedules.on_cluster()
    schedules.declared["refresh"]["cron"] = "0 30 0 * * *"
    monitor = schedules.declared.pop("monitor")
    assert schedules.apply() == ["delete monitor", "keep clean", "keep retrain", "replace refresh"]
    now = schedules.on_cluster()
    assert now.keys() == {"clean", "refresh", "retrain"}
    assert now["refresh"]["trigger"]["cron_schedule"]["cron"] == "0 30 0 * * *"
    assert now["refresh"]["recurring_run_id"] != previous["refresh"]["recurring_run_id"]
    assert now["retrain"]["recurring_run_id"] == previous["retrain"]["recurring_run_id"]
    assert "bifocal-refresh  0 30 0 * * *  enabled" in cluster.pipelines("schedule", "list")
    schedules.declared["monitor"] = monitor


def test_a_schedule_fires_and_its_runs_do_not_overlap(
    cluster: Cluster, registry: Any, schedules: Schedules
) -> None:
    schedules.declared = {"retrain": {**schedules.declared["retrain"], "cron": EVERY_MINUTE}}
    schedules.apply()
    schedule = schedules.on_cluster()["retrain"]["recurring_run_id"]
    first = None
    deadline = time.monotonic() + 300
    while first is None:
        assert time.monotonic() < deadline, "no run of a schedule of every minute within 300 s"
        time.sleep(5)
        first = next(iter(_runs(cluster, schedule)), None)
    assert cluster.wait(first["run_id"])["state"] == "SUCCEEDED"
    assert cluster.parent(registry, first["run_id"]).info.status == "FINISHED"
    schedules.declared = {}
    assert schedules.apply() == ["delete retrain"]
    for run in _runs(
        cluster, schedule
    ):  # one in progress keeps its schedule, which the fixture deletes
        assert cluster.wait(run["run_id"])["state"] == "SUCCEEDED"
    spans = sorted((run["created_at"], run["finished_at"]) for run in _runs(cluster, schedule))
    assert all(end <= start for (_, end), (start, _) in pairwise(spans)), spans


def _runs(cluster: Cluster, schedule: str) -> list[dict[str, Any]]:
    """Return the runs of a schedule, oldest first."""
    found = cluster.get("runs?page_size=100&sort_by=created_at").get("runs", [])
    return [run for run in found if run.get("recurring_run_id") == schedule]
