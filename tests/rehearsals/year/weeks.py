"""The weeks of the year: servers, the archive, the champion, and the events of each week.

Each week, 60 images come in 12 albums, the champion gets a release with them, a new version is
registered, released and promoted, an item is deleted over HTTP, the monitor compares the week, and
``clean --delete`` deletes previous files. In some weeks a replica or MLflow's server is killed, a
promotion is killed between its aliases, a promotion is rolled back, a canary decides, or the
database and the files of MLflow are lost and restored by the commands of docs/mlflow.md.

Models are the demo's, and images are vectors: nothing is trained or decoded. The time of a week is
simulated for the monitor and for ``clean``.
"""

import json
import os
import shutil
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import mlflow

from bifocal.progress import log_line
from bifocal.search.trained_model import TrainedModel
from components.cluster import canary
from components.cluster.steps import VERDICT, CanaryParams
from runtime.mlflow import get_version
from tests.pipelines.releases import move_alias
from tests.rehearsals.servers.backup import commands
from tests.rehearsals.servers.debian import POSTGRES
from tests.rehearsals.year import operation
from tests.rehearsals.year.fleet import Clients, Registry, Replicas, Truth, retried
from tests.rehearsals.year.operation import (
    ALBUM,
    ALBUMS,
    DAYS,
    FIRST_ALBUMS,
    FIRST_DAY,
    Archive,
    Run,
)

SEARCHES, REFERENCE_QUERIES = 200, 120
KILLED_REPLICA, KILLED_REGISTRY, KILLED_PROMOTION = (
    range(3, 53, 6),
    range(4, 53, 24),
    range(6, 53, 25),
)
ROLLBACK, CANARY, RESTORE = range(5, 53, 12), range(2, 53, 20), (7,)
RULE = {
    "searches": 150,
    "min_searches": 50,
    "error_rate": 0.05,
    "max_rises": {"errors": 0.1, "nothing_found": 0.1},
    "max_drops": {},
    "max_ratios": {},
}


class Year:
    """The state of the year: servers, the archive, and the run of the champion and of the version
    before it."""

    def __init__(self, folder: Path, demo: TrainedModel, database: str) -> None:
        self.folder, self.demo, self.database = folder, demo, database
        self.truth, self.registry, self.replicas = (
            Truth(),
            Registry(folder, database),
            Replicas(folder),
        )
        self.archive = Archive(demo, self.truth)
        self.texts, self.vectors = operation.captions(demo)
        self.events: dict[str, list[int]] = {}
        self.alarms: dict[int, list[str]] = {}
        self.disk: dict[int, dict[str, int]] = {}

    def start(self) -> None:
        """Promote the first version, start the replicas, and write the reference of the monitor."""
        os.environ["MLFLOW_TRACKING_URI"] = f"http://127.0.0.1:{self.registry.port}"
        mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
        self.registry.start()
        self.archive.add("start", FIRST_ALBUMS)
        self.champion, self.previous = operation.train(self.demo, self.folder / "run-0", 0), None
        self.champion.release(self.archive)
        self.champion.promote()
        self.replicas.start()
        self.loaded()
        operation.monitor(
            self.champion, self.folder / "monitoring", [self._queries(0)]
        ).write_reference(FIRST_DAY, DAYS)

    def loaded(self) -> None:
        """Wait until both replicas have the champion's release; from now on, an answer has all of
        its images."""
        self.replicas.wait_for(self.champion.digest)
        self.truth.set_everywhere(self.archive.items)

    def week(self, week: int, clients: Clients) -> None:
        """Simulate a week."""
        first = clients.answers
        self.archive.add(f"week-{week:02d}", ALBUMS)
        if week in KILLED_REGISTRY:
            self._event("MLflow's server killed", week)
            self.registry.kill()
            retried(lambda: self.champion.release(self.archive), self.registry.start)
        else:
            self.champion.release(self.archive)
        self.loaded()
        if week in RESTORE:
            self._restore(week)
        assert clients.delete(self.archive.items[37 * week]) == 204
        if week in KILLED_REPLICA:
            self._event("replica killed", week)
            self.replicas.servers[week % 2].kill()
            clients.wait_for(clients.answers + SEARCHES // 4)
            self.replicas.servers[week % 2].start()
            self.replicas.servers[week % 2].wait_until_ready()
        self._promotion(week)
        self.loaded()
        if week in ROLLBACK:
            self._rollback(week)
        found = operation.monitor(
            self.champion, self.folder / "monitoring", [self._queries(week)]
        ).compare(self._day(week), DAYS)
        if crossed := [finding.name for finding in found.crossed]:
            self.alarms[week] = crossed
        operation.clean(self.folder, week)
        clients.wait_for(first + SEARCHES)
        self.disk[week] = self._disk()
        log_line(
            f"week {week}: {clients.answers} answers, {len(clients.faults)} wrong, disk "
            f"{self.disk[week]}"
        )

    def _promotion(self, week: int) -> None:
        new = operation.train(self.demo, self.folder / f"run-{week}", week)
        new.release(self.archive)
        move_alias(new.number, "candidate")
        if week in CANARY:
            self._event("canary", week)
            self._canary(week, new)
        if week in KILLED_PROMOTION:
            self._event("promotion killed", week)
            new.promote_and_die()
        else:
            new.promote()
        if self.previous is not None:
            shutil.rmtree(self.previous.folder)
        self.champion, self.previous = new, self.champion

    def _canary(self, week: int, new: Run) -> None:
        self.replicas.wait_for_comparison()
        folder = self.folder / f"canary-{week}"
        folder.mkdir()
        (folder / "registration.json").write_text(
            json.dumps({"model": "bifocal", "version": new.number})
        )
        services = [f"http://127.0.0.1:{server.port}" for server in self.replicas.servers]
        params = CanaryParams(
            seed=1,
            rule=RULE,
            services=services,
            folder=f"s3://bucket/canary-{week}",
            hours=0.5,
            champion="champion",
            lock_timeout=60,
        )
        assert canary.run(params, registration=folder, canary=folder) == {VERDICT: "promote"}

    def _rollback(self, week: int) -> None:
        """Refresh the version before the champion, and roll back to it."""
        self._event("rollback", week)
        assert self.previous is not None
        self.previous.release(self.archive)
        operation.rollback()
        self.champion, self.previous = self.previous, None
        found = get_version("bifocal", "champion")
        assert found is not None
        assert found.number == self.champion.number
        self.loaded()

    def _restore(self, week: int) -> None:
        """Back up, lose a release, the database and the files, restore, and release again."""
        self._event("database and files lost and restored", week)
        backup, files = self.folder / "backup", self.folder / "files"
        backup.mkdir()
        assert POSTGRES is not None
        path = (
            f"{POSTGRES}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        )
        places = {
            "DATABASE": self.database,
            "FILES": str(files),
            "BACKUP": str(backup),
            "PATH": path,
        }

        def execute(heading: str) -> None:
            environment = os.environ | places
            subprocess.run(
                ["bash", "-euc", commands(heading)], env=environment, cwd=self.folder, check=True
            )

        execute("Backup")
        self.archive.add(f"lost-{week:02d}", ALBUMS)
        kept = self.archive.items[: -ALBUM * ALBUMS]
        self.champion.release(self.archive)
        self.replicas.wait_for(self.champion.digest)
        self.registry.kill()
        shutil.rmtree(files)
        drop = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        subprocess.run(
            [POSTGRES / "psql", self.database, "--quiet", "--command", drop],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        self.truth.set_everywhere(kept)
        execute("Restore")
        self.registry.start()
        self.champion.release(self.archive)
        self.loaded()

    def _disk(self) -> dict[str, int]:
        """Return the bytes of releases, of MLflow's other files, which are the models, and of the
        database."""
        assert POSTGRES is not None
        query = [
            POSTGRES / "psql",
            self.database,
            "--tuples-only",
            "--command",
            "SELECT pg_database_size('mlflow')",
        ]
        releases = operation.sizes(*self.folder.glob("files/*/*/artifacts/releases"))
        models = operation.sizes(self.folder / "files") - releases
        return {
            "releases": releases,
            "models": models,
            "database": int(subprocess.check_output(query)),
        }

    def _event(self, name: str, week: int) -> None:
        self.events.setdefault(name, []).append(week)

    def _day(self, week: int) -> date:
        return FIRST_DAY + timedelta(days=DAYS * week)

    def _queries(self, week: int) -> Path:
        file = self.folder / f"queries-{week}.txt"
        chosen = self.archive.random.choice(self.texts, REFERENCE_QUERIES)
        file.write_text("\n".join(chosen) + "\n")
        return file
