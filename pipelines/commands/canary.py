"""``python -m pipelines canary``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bifocal.serving.canary.decision import Rule
    from bifocal.serving.canary.intervals import Estimate
    from bifocal.serving.canary.report import Report

FILE = click.Path(path_type=Path)


@click.command()
@click.option(
    "--service", "services", multiple=True, default=("http://127.0.0.1:8080",), show_default=True,
    help="Address of 'bifocal serve'; repeat it for each replica.",
)  # fmt: skip
@click.option("--rule", "rule_file", type=FILE, help="Rule; by default pipelines/canary/canary.yaml.")
@click.option("--report", "only_report", is_flag=True, help="Print the report, and decide nothing.")
@click.option(
    "--artifacts", type=FILE, default=Path("artifacts"), show_default=True, help="Artifacts of the candidate's run."
)
@click.option("--policy", "policy_file", type=FILE, help="Policy; by default pipelines/policies/promotion.yaml.")
def canary(
    services: tuple[str, ...], rule_file: Path | None, only_report: bool, artifacts: Path, policy_file: Path | None
) -> None:
    """Decide on the second release of 'bifocal serve --canary' or '--shadow' by the searches of its clients.

    It prints the report of the service. A candidate that is worse than canary.yaml allows is withdrawn: no service uses
    it any more, and only 'promote --force' promotes it. For a candidate that is not worse, the command does the same as
    'python -m pipelines promote', which compares both on the test images, and moves the alias. It may run every hour,
    because the confidence intervals hold at every look.
    """
    from bifocal.serving.canary.decision import decide
    from pipelines.canary.services import load_rule, read_reports

    rule, state = load_rule(rule_file), read_reports(services)
    if state.report is not None:
        _print(state.report, rule)
    if state.stopped is not None or state.report is None:
        click.echo(f"nothing to decide: {state.stopped}")
        return
    if only_report:
        return
    decision = decide(rule, state.report)
    for reason in decision.reasons:
        click.echo(f"{decision.verdict}: {reason}")
    if decision.verdict == "wait":
        return
    from pipelines import policies
    from pipelines.canary.actions import promote_candidate, withdraw_candidate

    policy = policies.load_promotion(policy_file or policies.PROMOTION)
    if decision.verdict == "withdraw":
        version = withdraw_candidate(policy, state.report, decision)
        click.secho(f"withdrawn: version {version.number} of {version.model}", fg="red")
        return
    promotion = promote_candidate(policy, state.report, decision, artifacts)
    for against in promotion.reasons:
        click.secho(f"not promoted: {against}", fg="red")
    if promotion.promoted:
        click.secho(f"promoted: version {state.report.candidate.version} of {policy.model}", fg="green")


def _print(report: "Report", rule: "Rule") -> None:
    """Print a table of the metrics, with the intervals of the rule."""
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
        texts = [f"{_text(value):>{width}}" for value, width in zip(values, (26, 26, 28), strict=True)]
        click.echo(f"{metric.name:<14}{''.join(texts)}")


def _text(value: "Estimate | None") -> str:
    if value is None:
        return "-"
    interval = "" if value.interval is None else f" ({value.interval[0]:.3g} to {value.interval[1]:.3g})"
    return f"{value.value:.3g}{interval}"
