"""Results of the year with their bars."""

from collections.abc import Sequence

from benchmarks.common import Report
from benchmarks.simulated_year.weeks import Candidate, Measured, Scenario


def report_year(
    scenario: Scenario,
    weeks: Sequence[Measured],
    candidates: Sequence[Candidate],
    missed: Sequence[int],
    unlogged: Sequence[int],
) -> Report:
    """Return the results, without the duration.

    Args:
        missed: weeks whose refresh failed.
        unlogged: weeks of the monitor that MLflow lacks.
    """
    report = Report("robustness.year")
    queries, failed = sum(week.queries for week in weeks), sum(week.failed for week in weeks)
    report.add(
        "queries that failed",
        failed,
        at_most=0,
        reference=f"{queries:,} queries in {len(weeks)} weeks",
    )
    away = weeks[scenario.outage - 1]
    name = "queries that failed while the registry was away"
    report.add(name, away.failed, at_most=0, reference=f"{away.queries} queries")
    found = [week.week for week in weeks[scenario.drift - 1 :] if "images" in week.crossed]
    waited = found[0] - scenario.drift + 1 if found else len(weeks)
    report.add(
        "weeks until the new style is found",
        waited,
        at_most=2,
        reference=f"it begins in week {scenario.drift}",
    )
    bad = [candidate for candidate in candidates if not candidate.good]
    report.add(
        "bad models promoted", sum(c.promoted for c in bad), at_most=0, reference=_scores(bad)
    )
    good = [candidate for candidate in candidates if candidate.good and candidate.week]
    report.add(
        "good models promoted", sum(c.promoted for c in good), at_least=1, reference=_scores(good)
    )
    quiet = weeks[: scenario.drift - 1]
    name = "weeks before the new style with a false notice"
    report.add(name, sum(bool(week.crossed) for week in quiet), reference=f"of {len(quiet)}")
    later = weeks[scenario.retraining :]
    name = "weeks after the retraining with a notice of images"
    report.add(name, sum("images" in week.crossed for week in later), reference=f"of {len(later)}")
    report.add(
        "weeks whose refresh failed, and came a week later", len(missed), reference="the outage"
    )
    report.add(
        "weeks of the monitor that MLflow lacks",
        len(unlogged),
        reference="the outage; the files are written",
    )
    styled = f"{weeks[-1].styled} of them in the new style"
    report.add("images in the service at the end", weeks[-1].images, reference=styled)
    return report


def _scores(candidates: Sequence[Candidate]) -> str:
    return "recall sums " + ", ".join(f"{candidate.recall_sum:.0f}" for candidate in candidates)
