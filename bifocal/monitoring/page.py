"""The results of a week as one HTML page."""

from collections.abc import Mapping, Sequence
from datetime import date

from bifocal.datasets import Dataset
from bifocal.datasets.inspection import Inspection
from bifocal.monitoring.drift import DISCREPANCIES, TESTS, value_text
from bifocal.monitoring.week import Week
from bifocal.report.charts import line_chart
from bifocal.report.inspection import findings_table
from bifocal.report.pictures import Thumbnails
from bifocal.report.sections import (
    Badge,
    Block,
    Chart,
    Gallery,
    GalleryItem,
    Note,
    Page,
    Picture,
    Section,
    Table,
    Tile,
)

History = Mapping[date, Mapping[str, float]]
"""Values of the tests by the last day of a week, in order."""
FOOTER = (
    "Written by python -m pipelines monitor. This page is one file and loads nothing. It holds "
    "no query."
)


def monitoring_page(
    name: str,
    reference: date,
    week: Week,
    inspection: Inspection,
    unusual: Gallery | None,
    history: History,
) -> Page:
    """Return the page of a week for a model ``name``, with the ``history`` of all runs on its
    reference."""
    crossed = len(week.crossed)
    tiles = [
        Tile("thresholds crossed", str(crossed), "of " + str(len(week.findings)) + " tests"),
        *(Tile(kind, f"{count:,}") for kind, count in week.counts.items()),
    ]
    sections = [
        Section("Tests", f"Compared with the reference of {reference}.", [_tests(week)]),
        *_history(history),
        Section("New images", "Findings of the inspection.", [findings_table(inspection)]),
    ]
    if unusual is not None:
        sections.append(Section("Unusual images", "", [unusual]))
    subtitle = f"{week.days} days up to {week.day}, model {name}"
    return Page("Monitoring", subtitle, tiles, sections, FOOTER, kind="monitoring")


def _tests(week: Week) -> Block:
    if not week.findings:
        return Note("There were too few images and queries for any test.")
    rows = [
        (
            Badge("crossed" if finding.crossed else "ok", not finding.crossed),
            TESTS[finding.name],
            value_text(finding.name, finding.reference),
            value_text(finding.name, finding.value),
            f"{finding.p_value:.2g}",
            f"{finding.level:.2g}",
            value_text(finding.name, finding.min_change),
        )
        for finding in week.findings
    ]
    columns = ("", "test", "reference", "this week", "p-value", "level", "least rise")
    return Table("", columns, rows, wide=True, text=True)


def _history(history: History) -> list[Section]:
    shares = [
        name
        for name in TESTS
        if name not in DISCREPANCIES and all(name in values for values in history.values())
    ]
    if len(history) < 2 or not shares:
        return []
    days = [(day - min(history)).days for day in history]
    lines = {
        name.replace("_", " "): [100 * values[name] for values in history.values()]
        for name in shares
    }
    chart = Chart(line_chart(lines, days, "days since the first run", "percent of the queries"))
    return [Section("History", f"{len(history)} runs.", [chart])]


def unusual_images(dataset: Dataset, image_ids: Sequence[str]) -> Gallery | None:
    """Return a gallery of these new images, without images that have no file here; None if there is
    none."""
    thumbnails, local = (
        Thumbnails(dataset),
        set(dataset.images.loc[dataset.images["path"].notna(), "image_id"]),
    )
    shown = [image_id for image_id in image_ids if image_id in local]
    items = [GalleryItem([Picture(thumbnails.uri(image_id))], image_id) for image_id in shown]
    return Gallery(items, "", "New images that are least like the reference.") if items else None
