"""The inspection as one HTML page."""

from collections import Counter
from collections.abc import Sequence

from bifocal.datasets import Dataset
from bifocal.datasets.duplicates import DuplicatePair
from bifocal.datasets.inspection import Finding, Inspection
from bifocal.report.pictures import Thumbnails
from bifocal.report.sections import (
    Badge,
    Block,
    Gallery,
    GalleryItem,
    Note,
    Page,
    Picture,
    Section,
    Table,
    Tile,
)

SHOWN_PAIRS = 24
FOOTER = "Written by bifocal inspect. This page is one file and loads nothing."


def inspection_page(name: str, dataset: Dataset, inspection: Inspection) -> Page:
    """Return the page of a dataset's inspection."""
    counts = Counter(finding.severity for finding in inspection.findings)
    tiles = [
        Tile("images", inspection.counts["images"]),
        Tile("captions", inspection.counts["captions"]),
        Tile("errors", str(counts["error"]), "entries that are lost, or leak between splits"),
        Tile("warnings", str(counts["warning"]), "entries that make a model or its results worse"),
    ]
    sections = [
        Section(
            "Findings",
            "The most severe first.",
            [findings_table(inspection), *map(_examples, inspection.findings)],
        ),
        Section(
            "Contents",
            "",
            [
                Table("Counts", ("", ""), list(inspection.counts.items()), text=True),
                *_languages(inspection),
            ],
        ),
    ]
    if inspection.duplicates:
        pairs = inspection.duplicates
        note = f"{len(pairs):,} pairs; the {min(len(pairs), SHOWN_PAIRS)} most similar are shown."
        gallery = duplicate_gallery(
            pairs[:SHOWN_PAIRS], Thumbnails(dataset), "Images that look the same", note
        )
        sections.append(Section("Near-duplicates", "", [gallery]))
    return Page(
        f"Inspection of {name}", "Nothing was changed.", tiles, sections, FOOTER, kind="inspection"
    )


def findings_table(inspection: Inspection) -> Block:
    """Return the table of the findings, the most severe first."""
    if not inspection.findings:
        return Note("Nothing is wrong.")
    rows = [
        (
            Badge(finding.severity, {"error": False}.get(finding.severity)),
            finding.title,
            f"{finding.count:,}",
            finding.advice,
        )
        for finding in inspection.findings
    ]
    return Table("", ("", "finding", "entries", "what to do"), rows, wide=True, text=True)


def _examples(finding: Finding) -> Block:
    rows = [(example,) for example in finding.examples] or [("none",)]
    return Table(
        f"{finding.title}: the first of {finding.count:,}", ("entry",), rows, wide=True, text=True
    )


def _languages(inspection: Inspection) -> list[Block]:
    if not inspection.languages:
        return []
    rows = [
        (language, f"{share:.0%}") for language, share in list(inspection.languages.items())[:10]
    ]
    return [Table("Languages of the captions", ("", "images"), rows)]


def duplicate_gallery(
    pairs: Sequence[DuplicatePair], thumbnails: Thumbnails, title: str, note: str
) -> Gallery:
    """Return the pairs of images side by side, with their splits."""
    images = thumbnails.dataset.images
    split_of = dict(zip(images["image_id"], images["split"], strict=True))
    items = [
        GalleryItem(
            [Picture(thumbnails.uri(pair.first)), Picture(thumbnails.uri(pair.second))],
            f"{pair.first} and {pair.second}, correlation {pair.correlation:.4f}",
            Badge(
                f"{split_of[pair.first]}, {split_of[pair.second]}",
                split_of[pair.first] == split_of[pair.second],
            ),
        )
        for pair in pairs
    ]
    return Gallery(items, title, note)
