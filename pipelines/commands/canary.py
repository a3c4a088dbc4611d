"""``python -m pipelines canary``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.commands.project import policy_file, project_option
from pipelines.commands.registry import artifacts_option, candidate_artifacts

if TYPE_CHECKING:
    from bifocal.serving.canary.decision import Decision, Rule
    from bifocal.serving.canary.intervals import Estimate
    from bifocal.serving.canary.report import Report

FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--service",
    "services",
    multiple=True,
    default=("http://127.0.0.1:8080",),
    show_default=True,
    help="Address of 'bifocal serve'; repeat it for each replica, or give "
    "dns+http://NAME:PORT for all pods of a name.",
)
@click.option(
    "--counts", type=FILE, help="Folder that keeps the counts of replicas over their restarts."
)
@click.option(
    "--wait",
    "hours",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Hours to wait for a decision, one look each ten minutes.",
)
@click.option(
    "--rule", "rule_file", type=FILE, help="Rule; by default pipelines/policies/canary.yaml."
)
@click.option("--report", "only_report", is_flag=True, help="Only print the report.")
@project_option
@artifacts_option
@click.option("--policy", type=FILE, help="Policy; by default pipelines/policies/promotion.yaml.")
def canary(
    services: tuple[str, ...],
    counts: Path | None,
    hours: float,
    rule_file: Path | None,
    only_report: bool,
    artifacts: Path | None,
    policy: Path | None,
) -> None:
    """Withdraw or promote the release of 'bifocal serve --canary' or '--shadow', by the searches of
    clients.

    Prints the service's report. The command withdraws a candidate that is worse than canary.yaml
    allows: no service uses it any more, and only 'promote --force' promotes it. Otherwise the
    command continues as 'python -m pipelines promote': it compares both models on the test images
    and moves the alias. Run it as often as every hour, or give --wait: the confidence intervals
    hold at every look. A look that ends without a decision is recorded too.
    """
    from bifocal.serving.canary.services import read_reports
    from components.cluster.canary import api_key, wait_for_decision
    from pipelines import policies

    rule, key = policies.load_canary(rule_file or policies.CANARY), api_key()
    report, decision, stopped = wait_for_decision(
        lambda: read_reports(services, key, counts), rule, 0.0 if only_report else hours
    )
    if report is not None:
        _print(report, rule)
    if stopped is not None or report is None:
        click.echo(f"nothing to decide: {stopped}")
    elif decision is not None and not only_report:
        for reason in decision.reasons:
            click.echo(f"{decision.verdict}: {reason}")
        _act(policy_file(policy), report, decision, artifacts)


def _act(file: Path, report: "Report", decision: "Decision", artifacts: Path | None) -> None:
    """Log the decision; withdraw the candidate, continue as ``python -m pipelines promote``, or
    leave it."""
    from components.cluster.canary import Registered, log_decision
    from components.cluster.promote import promote
    from pipelines import policies
    from runtime.s3.remote_files import fetch_remote_files

    policy = policies.load_promotion(file)
    version, _ = log_decision(
        Registered(policy.model, policy.champion, policy.lock_timeout), report, decision
    )
    if decision.verdict == "withdraw":
        click.secho(f"withdrawn: version {version.number} of {version.model}", fg="red")
    if decision.verdict != "promote":
        return
    fetch_remote_files()
    dataset, features, _ = candidate_artifacts(artifacts)
    promotion = promote(
        policy, dataset, features, number=version.number, policy_file=policies.shown_path(file)
    )
    for against in promotion.reasons:
        click.secho(f"not promoted: {against}", fg="red")
    if promotion.promoted:
        click.secho(f"promoted: version {version.number} of {policy.model}", fg="green")


def _print(report: "Report", rule: "Rule") -> None:
    click.echo(f"{report.mode} of {report.share:.3g} of the clients since {report.since}")
    for arm, release, counts in (
        ("champion", report.champion, report.counts_champion),
        ("candidate", report.candidate, report.counts_candidate),
    ):
        click.echo(f"{arm:<10}{release.name}: {counts.searches.sum():,.0f} searches")
    if report.mode == "shadow":
        click.echo(f"{report.dropped:,} searches were not repeated for lack of time")
    click.echo(f"{'':<14}{'champion':>26}{'candidate':>26}{'difference or ratio':>28}")
    for metric in report.metrics(rule.alpha, rule.searches):
        values = (metric.champion, metric.candidate, metric.comparison)
        texts = [
            f"{_text(value):>{width}}" for value, width in zip(values, (26, 26, 28), strict=True)
        ]
        click.echo(f"{metric.name:<14}{''.join(texts)}")


def _text(value: "Estimate | None") -> str:
    if value is None:
        return "-"
    interval = (
        "" if value.interval is None else f" ({value.interval[0]:.3g} to {value.interval[1]:.3g})"
    )
    return f"{value.value:.3g}{interval}"
