"""Step monitor: run. ``python -m pipelines monitor`` calls the same functions."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bifocal.monitoring import Week
from bifocal.progress import log_line
from components.cluster.monitor.spec import MonitorParams
from components.cluster.monitor.week import LEDGER, PAGE, RESULTS, Artifacts, Monitor
from runtime.artifacts import write_text
from runtime.s3.storage import Storage

REFERENCE_PAGE = "<!doctype html><title>Monitoring</title><p>This run wrote the reference of {day}.\n"


def run(params: MonitorParams, *, onnx: Path, collection: Path, index: Path, monitoring: Path) -> dict[str, float]:
    """Compare the days up to yesterday with the reference in ``params.folder``; write it first for a new champion.

    A crossed threshold sends a notice and is no error. Results and pages go to the folder.

    Raises:
        StorageError: the folder, a log or the probes cannot be read.
        OSError: MLflow or the web hook does not answer.
    """
    day = datetime.now(UTC).date() - timedelta(days=1)
    with TemporaryDirectory() as work:
        folder = Path(work) / "monitoring"
        if Storage().exists(f"{params.folder}/{LEDGER}"):
            Storage().download(params.folder, folder)
        folder.mkdir(exist_ok=True)
        logs = [file for number, log in enumerate(params.queries) for file in _files(log, Path(work) / str(number))]
        probes = None if params.probes is None else next(_files(params.probes, Path(work) / "probes"))
        monitor = Monitor(Artifacts(onnx, collection, index), folder, params.policy, logs, probes)
        week: Week | None = None
        if monitor.has_reference():
            week = monitor.compare(day, params.days)
            for name in (PAGE, RESULTS):
                shutil.copy(monitor.page(day).with_name(name), monitoring)
        else:
            monitor.write_reference(day, params.days)
            write_text(monitoring / PAGE, REFERENCE_PAGE.format(day=day))
            log_line(f"{params.folder} has no reference of this model: the days until {day} are now the reference")
        Storage().upload(folder, params.folder)
        if week is None:
            return {"references": 1.0}
        monitor.send(week)
        monitor.log(week)
        for finding in week.crossed:
            log_line(f"{finding.name}: {finding.reference:.3g} -> {finding.value:.3g}, p = {finding.p_value:.2g}")
        return {"crossed": float(len(week.crossed)), **{finding.name: finding.value for finding in week.findings}}


def _files(address: str, folder: Path) -> Iterator[Path]:
    """Download a file, or a folder of files, and yield the files."""
    target = folder / Path(address).name
    folder.mkdir()
    Storage().download(address, target)
    yield from sorted(target.rglob("*")) if target.is_dir() else [target]
