"""``python -m pipelines monitor``."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from pipelines.commands.project import PROJECTS, chosen_project, policy_file, project_option
from runtime.redaction import redact

CROSSED = 3
"""Exit code if a threshold is crossed; errors have 1, wrong options 2."""


@click.command()
@project_option
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder of the run, with its model, collection and index; by default the default run.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(path_type=Path),
    help="Folder of the reference, the results and the pages; by default monitoring, or "
    "projects/NAME/monitoring.",
)
@click.option(
    "--queries",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Log of 'bifocal serve --log-queries', or a .txt file with one sentence per line; "
    "may be repeated.",
)
@click.option(
    "--thresholds",
    type=click.Path(path_type=Path, exists=True),
    help="Thresholds; by default pipelines/policies/thresholds.yaml.",
)
@click.option(
    "--days", type=click.IntRange(min=1), default=7, show_default=True, help="Days to compare."
)
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    help="Last of these days, in UTC; by default yesterday.",
)
@click.option(
    "--reference",
    is_flag=True,
    help="Write the reference of these days, in place of comparing with it.",
)
def monitor(
    folder: Path,
    target: Path | None,
    queries: tuple[Path, ...],
    thresholds: Path | None,
    days: int,
    until: datetime | None,
    reference: bool,
) -> None:
    """Compare a week's queries and new images with the data that the model was trained for.

    Run it with --reference right after the training, and then every week; with --project, the first
    run writes the reference of its champion. It writes a page,
    monitor.json and monitor.prom for Prometheus, and logs the values to MLflow. If a threshold is
    crossed, it sends a notice to BIFOCAL_NOTICE_URL, and the exit code is 3.
    """
    from bifocal.monitoring.drift import Thresholds, value_text
    from bifocal.monitoring.monitor import Artifacts, Monitor
    from bifocal.search.trained_model import COLLECTION, INDEX, ONNX
    from pipelines import policies
    from runtime.mlflow.runs import log_monitoring
    from runtime.notices import send_notice
    from runtime.s3.remote_files import fetch_remote_files

    fetch_remote_files()
    project, artifacts = (
        chosen_project(),
        Artifacts(folder / ONNX, folder / COLLECTION, folder / INDEX),
    )
    if project:
        work = click.get_current_context().with_resource(TemporaryDirectory())
        artifacts = Artifacts(*_champion(Path(work)))
    target = target or (PROJECTS / project if project else Path()) / "monitoring"
    target.mkdir(parents=True, exist_ok=True)
    watched = Monitor(
        artifacts,
        target,
        Thresholds.of(policies.load_thresholds(thresholds or policies.THRESHOLDS).model_dump()),
        queries,
    )
    day = until.date() if until else datetime.now(UTC).date() - timedelta(days=1)
    if reference or (project and not watched.has_reference()):
        seen = watched.write_reference(day, days).observations
        click.echo(
            f"reference of {len(seen.images):,} images and {len(seen.queries):,} queries -> "
            f"{target}"
        )
        return
    week = watched.compare(day, days)
    for finding in week.findings:
        values = (
            f"{value_text(finding.name, finding.reference)} -> "
            f"{value_text(finding.name, finding.value)}"
        )
        line = f"{finding.name:<16} {values:<20} p = {finding.p_value:.2g}"
        click.secho(
            f"{line}  CROSSED" if finding.crossed else line, fg="red" if finding.crossed else None
        )
    page = watched.page(day)
    click.echo(f"-> {page}")
    problems = [
        *(_failure(lambda: send_notice(week.notice())) if week.crossed else ()),
        *_failure(lambda: log_monitoring(week, watched.reference(), page)),
    ]
    for problem in problems:
        click.secho(f"error: {problem}", fg="red", err=True)
    if week.crossed or problems:
        sys.exit(CROSSED if week.crossed else 1)


def _champion(folder: Path) -> tuple[Path, Path, Path]:
    """Download the release of the project's champion; return graphs, collection and index."""
    from pipelines import policies
    from runtime.mlflow import get_version
    from runtime.mlflow.releases import COLLECTION, INDEX, download_release, read_digest

    rules = policies.load_promotion(policy_file())
    champion = get_version(rules.model, rules.champion)
    if champion is None:
        raise ValueError(f"{rules.model} has no champion: run the flow train first")
    graphs, released = download_release(champion, read_digest(champion), folder)
    return graphs, released / COLLECTION, released / INDEX


def _failure(action: Callable[[], object]) -> Iterator[str]:
    try:
        action()
    except OSError as error:
        yield redact(str(error))
