"""An inspection as tables of the terminal."""

from rich.console import Group, RenderableType
from rich.table import Table

from bifocal.datasets.inspection import Inspection

COLORS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def findings_tables(inspection: Inspection) -> RenderableType:
    """Return the tables of contents and of findings."""
    contents = Table(show_header=False, box=None)
    for name, value in inspection.counts.items():
        contents.add_row(name, value)
    if inspection.languages:
        shares = (f"{language} {share:.0%}" for language, share in inspection.languages.items())
        contents.add_row("languages", ", ".join(shares))
    if not inspection.findings:
        return Group(contents, "Nothing is wrong.")
    findings = Table("", "finding", "entries", "what to do")
    for finding in inspection.findings:
        color = COLORS[finding.severity]
        example = f"\n[dim]{_escaped(finding.examples[0])}[/dim]" if finding.examples else ""
        findings.add_row(
            f"[{color}]{finding.severity}[/]", _escaped(finding.title) + example, f"{finding.count:,}", finding.advice
        )
    return Group(contents, findings)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")[:160]
