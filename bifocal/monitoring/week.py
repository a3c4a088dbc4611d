"""Results of a week: their file, their values for a tracking server, and the notice of crossed thresholds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any

from bifocal.monitoring.drift import TESTS, Finding, value_text


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
    findings: Sequence[Finding]

    @property
    def crossed(self) -> list[Finding]:
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
            f"{TESTS[finding.name]}: {value_text(finding.name, finding.reference)} in the reference, "
            f"{value_text(finding.name, finding.value)} now"
            for finding in self.crossed
        )
        return f"bifocal monitor, {self.days} days up to {self.day}: {'; '.join(reasons)}"

    def to_json(self) -> dict[str, Any]:
        """Return the results as values for JSON."""
        findings = [{**asdict(finding), "crossed": finding.crossed} for finding in self.findings]
        return {"day": self.day.isoformat(), "days": self.days, "counts": dict(self.counts), "findings": findings}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Week":
        """Return the results in a value of ``to_json``."""
        names = [entry.name for entry in fields(Finding)]
        findings = [Finding(**{name: finding[name] for name in names}) for finding in content["findings"]]
        return cls(date.fromisoformat(content["day"]), content["days"], content["counts"], findings)
