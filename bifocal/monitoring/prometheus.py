"""Results as a text file for the textfile collector of Prometheus's node exporter."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from bifocal.monitoring.drift import Finding

GAUGES = {
    "bifocal_monitor_value": "Value of the week; docs/monitoring.md describes the tests",
    "bifocal_monitor_reference": "Value of the training reference",
    "bifocal_monitor_p_value": "Probability of such a rise without a change",
    "bifocal_monitor_crossed": "1 if the threshold is crossed, else 0",
}


def exposition(findings: Sequence[Finding], counts: Mapping[str, int], moment: datetime) -> str:
    """Return findings and numbers of entries, of a run at ``moment``, in Prometheus's text format 0.0.4."""
    lines = []
    for gauge, description in GAUGES.items():
        lines += [f"# HELP {gauge} {description}", f"# TYPE {gauge} gauge"]
        field = gauge.removeprefix("bifocal_monitor_")
        lines += [f'{gauge}{{test="{finding.name}"}} {float(getattr(finding, field)):.9g}' for finding in findings]
    lines += ["# HELP bifocal_monitor_entries Entries of the week", "# TYPE bifocal_monitor_entries gauge"]
    lines += [f'bifocal_monitor_entries{{kind="{kind}"}} {count}' for kind, count in counts.items()]
    time = "bifocal_monitor_last_run_timestamp_seconds"
    lines += [f"# HELP {time} Time of the last complete run", f"# TYPE {time} gauge"]
    lines.append(f"{time} {moment.timestamp():.0f}")
    return "\n".join(lines) + "\n"
