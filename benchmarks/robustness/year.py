"""Does a year of production pass without a failed query or a bad champion?

    python -m benchmarks run robustness.year --plot docs/pictures/year.png
    python -m benchmarks run robustness.year --weeks 8    # the same events, no result

A scripted year of 52 simulated weeks with the real parts: stages, MLflow server on SQLite, release,
service and clients in processes of their own, decision and monitor with their default thresholds.
Each week, 120 new scenes come to an archive of 1,500; 40 of them have captions. In week 10, a model
is trained with captions beside other images. From week 20 on, 20 to 40 % of the new images are line
drawings. In week 27, a model is trained with all captions so far; in week 36, with a table that
ends after 40 images. In week 43, SIGKILL ends the MLflow server; it comes back in week 44.

Simplifications: the backbone of ``bifocal demo`` is used, and only heads are trained on its
features. The policy of promotion is the default one without ``pointing``, because the captions have
no boxes, and with ``allow_dirty``. The monitor reads the queries of a week from a file, because the
log of a week that lasts seconds has the time of one day.
"""

import argparse
import logging
import os
import time
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.robustness.drift import STYLES
from benchmarks.simulated_year.archive import (
    SIDE,
    Archive,
    Row,
    cut_off,
    in_wrong_rows,
    write_table,
)
from benchmarks.simulated_year.clients import Clients
from benchmarks.simulated_year.operation import DAYS, POLICY, Model, look, monitor, train
from benchmarks.simulated_year.plot import plot_year
from benchmarks.simulated_year.processes import Registry, Service
from benchmarks.simulated_year.results import report_year
from benchmarks.simulated_year.weeks import YEAR, Candidate, Measured, Scenario
from bifocal.search.collection.collection import Collection

SEED = 7001
STYLE = "line drawings"
CAPTIONED, UNCAPTIONED, HELD_OUT = 400, 600, 250
"""First images with and without captions, and images of val and of test each."""
NEW, NEW_CAPTIONED, CUT_OFF = 120, 40, 40
QUERIES, FORMER_QUERIES = 200, 1000
"""Queries of a week, and of the time before the first week."""
REFERENCE_WEEKS = 5
FIRST_DAY = date(2027, 1, 3)
MINUTES = 15.0
SETTINGS: dict[str, Any] = {
    "extract_features": {"extractor": {"size": SIDE}},
    "train_embedding": {
        "model": {"dim": 192},
        "phases": {0: {"epochs": 8, "batches": {"batch_size": 224, "captions_per_image": 7}}},
    },
    "evaluate": {
        "evaluators": [{"name": "Retrieval", "protocol": "full", "ks": [1, 5, 10]}],
        "bootstrap_resamples": 200,
        "report": {"queries": 2},
    },
    "embed_collection": {"regions": False},
    "register_model": {"model": POLICY.model, "alias": POLICY.candidate},
}


@dataclass
class Year:
    """The state of the simulation.

    Args:
        folder: of all files.

    Attributes:
        missed: weeks whose refresh failed because the registry was away.
        unlogged: weeks of the monitor that MLflow lacks.
    """

    folder: Path
    scenario: Scenario
    weeks: list[Measured] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)
    unlogged: list[int] = field(default_factory=list)

    def run(self) -> None:
        """Simulate the year."""
        images = self.folder / "images"
        self.archive, self.styled = Archive(images, SEED, STYLES[STYLE]), 0
        self.registry = Registry(self.folder / "registry")
        self.service = Service(
            f"{POLICY.model}@{POLICY.champion}", images, self.folder / "service.jsonl"
        )
        self.clients = Clients(self.folder / "clients", self.service.port)
        try:
            self.registry.start()
            self._begin()
            for week in range(1, self.scenario.weeks + 1):
                self._week(week)
        finally:
            self.clients.stop()
            self.service.stop()
            self.registry.kill()

    def _begin(self) -> None:
        """Train the first champion, start the service, and write the reference of the monitor."""
        self.archive.add("start", "train", CAPTIONED + UNCAPTIONED, CAPTIONED)
        for split in ("val", "test"):
            self.archive.add(split, split, HELD_OUT, HELD_OUT)
        model = self._train(0, "first", self.archive.rows, good=True)
        if model is None:
            raise RuntimeError(f"the first model is refused: {self.candidates[0].reasons}")
        self.model = model
        self.service.start()
        self.service.wait_for(self.release)
        self.clients.ask(0, self.archive.queries(FORMER_QUERIES))
        self.clients.start()
        self._write_reference(0)

    def _week(self, week: int) -> None:
        """Simulate a week."""
        event, start = self.scenario, time.monotonic()
        if week == event.outage:
            self.registry.kill()
        if week == event.outage + 1:
            self.registry.start()
        queries = self.clients.ask(week, self.archive.queries(QUERIES))
        styled = round(event.styled_share(week) * NEW)
        self.archive.add(f"week-{week:02d}", "train", NEW, NEW_CAPTIONED, styled)
        self.styled += styled
        self._refresh(week)
        day = FIRST_DAY + timedelta(days=DAYS * week)
        found, logged = look(self.model, self._monitoring, queries, day)
        crossed = [finding.name for finding in found.crossed]
        if not logged:
            self.unlogged.append(week)
        self._trainings(week)
        answers = self.clients.finish(week, QUERIES)
        findings = {finding.name: finding for finding in found.findings}
        self.weeks.append(
            Measured(
                week,
                Collection.open(self.model.artifacts / "collection").description.items,
                self.styled,
                findings["images"].p_value if "images" in findings else None,
                crossed,
                len(answers.statuses),
                answers.failed,
                answers.milliseconds(50),
                answers.milliseconds(99),
                self.model.version,
            )
        )
        print(f"{time.monotonic() - start:5.1f} s", self.weeks[-1], flush=True)

    def _refresh(self, week: int) -> None:
        try:
            self.release = self.model.refresh()
        except OSError:
            self.missed.append(week)
        self.service.wait_for(self.release)

    def _trainings(self, week: int) -> None:
        event, rows = self.scenario, self.archive.rows
        if week == event.wrong_rows:
            self._train(week, "captions in wrong rows", in_wrong_rows(rows), good=False)
        if week == event.cut_off:
            self._train(week, f"table of {CUT_OFF} images", cut_off(rows, CUT_OFF), good=False)
        if week == event.retraining and (
            model := self._train(week, "all captions", rows, good=True)
        ):
            self.model = model
            self.service.wait_for(self.release)
            self._write_reference(week)

    def _train(self, week: int, name: str, rows: list[Row], good: bool) -> Model | None:
        """Train a candidate; return it if it became the champion."""
        table = self.folder / f"captions-{week:02d}.csv"
        write_table(table, rows)
        model = train(self.folder / f"run-{week:02d}", self.archive.folder, table, SETTINGS)
        decision = model.decide(only=True)
        if decision.accepted:
            release = model.refresh()
            decision = model.decide(only=False)
        if decision.promoted:
            self.release = release
        score = decision.record["metrics"].get("candidate.recall_sum", 0.0)
        self.candidates.append(
            Candidate(week, name, score, good, decision.promoted, decision.reasons)
        )
        print(self.candidates[-1], flush=True)
        return model if decision.promoted else None

    @property
    def _monitoring(self) -> Path:
        return self.folder / f"monitoring-{self.model.version}"

    def _write_reference(self, week: int) -> None:
        """Write the reference of the champion, with the queries of the last weeks."""
        queries = sorted(self.clients.folder.glob("week-*.txt"))[-REFERENCE_WEEKS:]
        day = FIRST_DAY + timedelta(days=DAYS * week)
        monitor(self.model, self._monitoring, queries).write_reference(day, DAYS)


def main() -> None:
    """Simulate a year, and write the results and the plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--plot", type=Path, help="file of the plot")
    parser.add_argument(
        "--weeks", type=int, default=YEAR, help="fewer weeks, at least 6, with the same events"
    )
    options = parser.parse_args()
    logging.getLogger("mlflow").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    start = time.monotonic()
    with TemporaryDirectory() as folder:
        year = Year(Path(folder), Scenario.shortened(options.weeks))
        year.run()
    report = report_year(year.scenario, year.weeks, year.candidates, year.missed, year.unlogged)
    load = f"load {os.getloadavg()[2]:.0f} on {os.cpu_count()} cores"
    report.add("duration", (time.monotonic() - start) / 60, "min", at_most=MINUTES, reference=load)
    if options.plot:
        plot_year(options.plot, year.weeks, year.candidates, year.scenario)
    if options.weeks == YEAR:
        report.write()


if __name__ == "__main__":
    main()
