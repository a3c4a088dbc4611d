"""``python -m pipelines status``."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bifocal.datasets.corrections import FILE, FOUND, is_answered, read_corrections
from bifocal.onnx.files import read_json
from pipelines.app.cache import megabytes
from pipelines.commands.project import (
    PROJECTS,
    chosen_project,
    policy_file,
    project_files,
    project_option,
    run_folder,
)

if TYPE_CHECKING:
    from components.cluster.policies import PromotionPolicy

VERDICTS = {
    "": "not decided",
    "no": "refused",
    "accepted": "accepted",
    "yes": "promoted",
    "forced": "forced",
}


@click.command()
@project_option
@click.option(
    "--page", type=click.Path(path_type=Path, dir_okay=False), help="Also write an HTML page."
)
def status(page: Path | None) -> None:
    """Print a project's versions with decisions, its last and next runs, drift, corrections and
    disk."""
    from rich.console import Console
    from rich.table import Table

    from pipelines import policies

    rules = policies.load_promotion(policy_file())
    columns, versions = ("version", "made", "alias", "decision", "reasons"), _versions(rules)
    facts = dict(_facts(rules))
    table = Table(*columns, title=f"Versions of {rules.model}")
    for row in versions:
        table.add_row(*row)
    Console().print(table)
    for name, value in facts.items():
        click.echo(f"{name}: {value}")
    if page:
        from bifocal.report import sections

        blocks = [
            sections.Table("Versions", columns, versions, wide=True, text=True),
            sections.Table("State", ("", "value"), list(facts.items()), wide=True, text=True),
        ]
        title = f"{rules.model}, {datetime.now(UTC):%Y-%m-%d}"
        section = sections.Section("Project", "", blocks)
        page.write_text(
            sections.render(sections.Page(title, "", [], [section], kind="status")), "utf-8"
        )
        click.echo(f"page: {page.resolve().as_uri()}")


def _versions(rules: "PromotionPolicy") -> list[list[str]]:
    from runtime.mlflow import get_version
    from runtime.mlflow.registry import registered_versions

    aliases: dict[int, list[str]] = {}
    for alias in (rules.champion, rules.previous, rules.candidate):
        if version := get_version(rules.model, alias):
            aliases.setdefault(version.number, []).append(alias)
    rows = []
    for entry in sorted(registered_versions(rules.model), key=lambda entry: -int(entry.version)):
        made = datetime.fromtimestamp(entry.creation_timestamp / 1000, UTC)
        verdict = entry.tags.get("promotion", "")
        rows.append(
            [
                str(entry.version),
                f"{made:%Y-%m-%d %H:%M}",
                ", ".join(aliases.get(int(entry.version), ())),
                VERDICTS.get(verdict, verdict),
                entry.tags.get("promotion.veto") or entry.tags.get("promotion.reasons", ""),
            ]
        )
    return rows


def _facts(rules: "PromotionPolicy") -> Iterator[tuple[str, str]]:
    from runtime.checkout import tracking_uri
    from runtime.mlflow.parents import last_pipeline_run
    from runtime.redaction import redact

    folder, project = run_folder(), chosen_project()
    if run := last_pipeline_run(project or "bifocal"):
        start = datetime.fromtimestamp(run.info.start_time / 1000, UTC)
        minutes = run.data.metrics.get("duration_seconds", 0) / 60
        state = f"{run.info.status.lower()}{f' in {minutes:.0f} min' if minutes else ''}"
        yield "last run", f"{run.info.run_name}, {start:%Y-%m-%d %H:%M} UTC, {state}"
    if project:
        yield "next run", "; ".join(_next_runs(project)) or "none: no line in crontab"
    report = folder / ("evaluate" if project else "artifacts") / "report" / "index.html"
    if report.is_file():
        moment = datetime.fromtimestamp(report.stat().st_mtime, UTC)
        yield "last training", f"{moment:%Y-%m-%d %H:%M}, report {report.resolve().as_uri()}"
    weeks = sorted((PROJECTS / (project or "") / "monitoring").glob("*/monitor.json"))
    if weeks:
        crossed = [test["name"] for test in read_json(weeks[-1])["findings"] if test["crossed"]]
        yield "drift", f"{weeks[-1].parent.name}: {', '.join(crossed) or 'none'}"
    if project:
        corrected, _ = read_corrections(PROJECTS / project / FILE)
        yield "corrections", _answers(rules, corrected)
    uri = redact(tracking_uri())
    ui = uri if uri.startswith("http") else f"mlflow ui --backend-store-uri {uri}"
    yield "MLflow", f"{ui}, experiment {project or 'bifocal'}"
    used = {name: megabytes(path) for name, path in (("runs", folder), ("MLflow", Path("mlruns")))}
    yield "disk", ", ".join(f"{size:,.0f} MB of {name}" for name, size in used.items())


def _next_runs(project: str) -> Iterator[str]:
    """Yield the next start of each flow: by crontab, or on a cluster by the declared schedules."""
    from pipelines.kubeflow.cron import next_start

    if project_files("cluster.yaml"):
        from pipelines.kubeflow import schedule

        declared = schedule.load(*project_files("schedules.yaml"))
        starts = [(name, entry.cron) for name, entry in declared.items() if entry.enabled]
        now = datetime.now(UTC)
    else:
        line = rf"^[ \t]*((?:[^\s#]\S*[ \t]+){{5}})(.*--project[ =]{project}(?:\s.*)?)$"
        starts, now = [], datetime.now().astimezone()
        for when, command in re.findall(line, _crontab(), re.MULTILINE):
            named = re.search(r"--flow[ =](\S+)", command) or re.search(r"pipelines (\S+)", command)
            starts.append((named[1] if named else command, f"0 {when.strip()}"))
    for name, cron in starts:
        try:
            start = next_start(cron, now)
            yield f"{name} {start:%Y-%m-%d %H:%M %Z}" if start else f"{name} never"
        except ValueError:  # cron knows more than Kubeflow
            yield f"{name} by the line {cron.removeprefix('0 ')}"


def _crontab() -> str:
    with suppress(FileNotFoundError):
        return subprocess.run(["crontab", "-l"], capture_output=True, text=True, check=False).stdout
    return ""


def _answers(rules: "PromotionPolicy", corrected: Mapping[tuple[str, str], bool]) -> str:
    """Return how many corrections the champion answers; only their number without its release."""
    from pipelines.app.serve_sources import REGISTRY, ReleaseSource

    try:
        release = ReleaseSource(f"{REGISTRY}{rules.model}@{rules.champion}", None).load()
    except FileNotFoundError:
        return f"{len(corrected)}"
    answered = sum(
        is_answered(image_id, [hit.id for hit in release.search(text, k=FOUND)], right=right)
        for (image_id, text), right in corrected.items()
    )
    return f"the champion answers {answered} of {len(corrected)}"
