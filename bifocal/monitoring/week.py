"""Results of a week: their files, their values for a tracking server, and the notice of crossed
thresholds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any

from bifocal.monitoring.drift import TESTS, DriftTest, value_text

GAUGES = {
    "bifocal_monitor_value": "Value of the week; docs/monitoring.md describes the tests",
    "bifocal_monitor_reference": "Value of the training reference",
    "bifocal_monitor_p_value": "Probability of such a rise without a change",
    "bifocal_monitor_crossed": "1 if the threshold is crossed, else 0",
}


@dataclass(frozen=True)
class Week:
    """Results of some days.

    Attributes:
        day: the last one.
        days: their number.
        counts: number of new images, of queries and of probes, by these words.
        findings: results of the tests.
    """

    day: date
    days: int
    counts: Mapping[str, int]
    findings: Sequence[DriftTest]

    @property
    def crossed(self) -> list[DriftTest]:
        """Findings that are reported."""
        return [finding for finding in self.findings if finding.crossed]

    def metrics(self) -> dict[str, float]:
        """Return the values, p-values and counts by name, and the number of crossed thresholds."""
        metrics = {f"{finding.name}.value": finding.value for finding in self.findings}
        metrics |= {f"{finding.name}.p_value": finding.p_value for finding in self.findings}
        metrics |= {kind.replace(" ", "_"): float(count) for kind, count in self.counts.items()}
        return metrics | {"thresholds_crossed": float(len(self.crossed))}

    def notice(self) -> str:
        """Return one sentence on the crossed thresholds."""
        reasons = (
            f"{TESTS[finding.name]}: {value_text(finding.name, finding.reference)} in the "
            f"reference, {value_text(finding.name, finding.value)} now"
            for finding in self.crossed
        )
        return f"bifocal monitor, {self.days} days up to {self.day}: {'; '.join(reasons)}"

    def exposition(self, moment: datetime) -> str:
        """Return the results of a run at ``moment`` in Prometheus's text format 0.0.4."""
        lines = []
        for gauge, description in GAUGES.items():
            lines += [f"# HELP {gauge} {description}", f"# TYPE {gauge} gauge"]
            name = gauge.removeprefix("bifocal_monitor_")
            lines += [
                f'{gauge}{{test="{entry.name}"}} {float(getattr(entry, name)):.9g}'
                for entry in self.findings
            ]
        lines += [
            "# HELP bifocal_monitor_entries Entries of the week",
            "# TYPE bifocal_monitor_entries gauge",
        ]
        lines += [
            f'bifocal_monitor_entries{{kind="{kind}"}} {count}'
            for kind, count in self.counts.items()
        ]
        time = "bifocal_monitor_last_run_timestamp_seconds"
        lines += [f"# HELP {time} Time of the last complete run", f"# TYPE {time} gauge"]
        lines.append(f"{time} {moment.timestamp():.0f}")
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the results as values for JSON."""
        findings = [{**asdict(finding), "crossed": finding.crossed} for finding in self.findings]
        return {
            "day": self.day.isoformat(),
            "days": self.days,
            "counts": dict(self.counts),
            "findings": findings,
        }
