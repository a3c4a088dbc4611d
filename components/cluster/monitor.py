"""Step monitor: run. ``python -m pipelines monitor`` calls the same class."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bifocal.durable import write_text
from bifocal.monitoring.drift import Thresholds
from bifocal.monitoring.monitor import LEDGER, PAGE, RESULTS, Artifacts, Monitor
from bifocal.progress import log_line
from components.cluster.steps import MonitorParams
from runtime.mlflow.runs import log_monitoring
from runtime.notices import send_notice
from runtime.s3.storage import Storage
from runtime.s3.uri import is_remote

REFERENCE_PAGE = (
    "<!doctype html><title>Monitoring</title><p>This run wrote the reference of {day}.\n"
)


def run(
    params: MonitorParams, *, onnx: Path, collection: Path, index: Path, monitoring: Path
) -> dict[str, float]:
    """Compare the days up to yesterday with the reference, or write the first one; send crossed
    thresholds."""
    day = datetime.now(UTC).date() - timedelta(days=1)
    with TemporaryDirectory() as work:
        folder, remote = Path(params.folder), is_remote(params.folder)
        if remote:
            folder = Path(work) / "monitoring"
            if Storage().exists(f"{params.folder}/{LEDGER}"):
                Storage().download(params.folder, folder)
        folder.mkdir(parents=True, exist_ok=True)
        logs = [
            file
            for number, log in enumerate(params.queries)
            for file in _files(log, Path(work) / str(number))
        ]
        thresholds = Thresholds.of(params.policy.model_dump())
        monitor = Monitor(Artifacts(onnx, collection, index), folder, thresholds, logs)
        if not monitor.has_reference():
            monitor.write_reference(day, params.days)
            if remote:
                Storage().upload(folder, params.folder)
            write_text(monitoring / PAGE, REFERENCE_PAGE.format(day=day))
            log_line(
                f"{params.folder} has no reference: the days until {day} are now the reference"
            )
            return {"references": 1.0}
        week = monitor.compare(day, params.days)
        for name in (PAGE, RESULTS):
            shutil.copy(monitor.page(day).with_name(name), monitoring)
        if remote:
            Storage().upload(folder, params.folder)
        if week.crossed:
            send_notice(week.notice())
        log_monitoring(week, monitor.reference(), monitor.page(day))
        for finding in week.crossed:
            log_line(
                f"{finding.name}: {finding.reference:.3g} -> {finding.value:.3g}, p = "
                f"{finding.p_value:.2g}"
            )
        return {
            "crossed": float(len(week.crossed)),
            **{finding.name: finding.value for finding in week.findings},
        }


def _files(address: str, folder: Path) -> Iterator[Path]:
    """Download a file, or a folder of files, and yield the files."""
    target = Path(address)
    if is_remote(address):
        folder.mkdir()
        target = folder / target.name
        Storage().download(address, target)
    yield from sorted(target.rglob("*")) if target.is_dir() else [target]
