"""Content of the report's page: the sections of all results, skipped evaluators, and the lineage."""

from collections.abc import Mapping, Sequence

from bifocal.evaluation.base import Result, Subject
from bifocal.report.metric_rows import headline_tiles
from bifocal.report.sections import Details, Page, Section, Table


def build_page(
    subject: Subject, results: Sequence[Result], lineage: Mapping[str, Mapping[str, str]], footer: str = ""
) -> Page:
    """Return the page; an empty ``lineage`` leaves out its section."""
    sections = [section for result in results for section in result.report_sections()]
    skipped = [(result.title, result.skipped) for result in results if result.skipped]
    if skipped:
        note = "Evaluators that do not apply to this model or dataset."
        sections.append(Section("Skipped", note, [Table("", ("evaluator", "reason"), skipped, wide=True, text=True)]))
    if lineage:
        note = "Artifacts behind this page, with the parameters and hashes of their manifests."
        details = [Details(artifact, values) for artifact, values in lineage.items()]
        sections.append(Section("Lineage", note, details))
    return Page(
        title=f"{subject.encoder_name} on the {subject.split_name} split",
        subtitle=data_sentence(subject),
        tiles=headline_tiles([row for result in results for row in result.metric_rows()]),
        sections=sections,
        footer=footer,
    )


def data_sentence(subject: Subject) -> str:
    """Return a sentence about the evaluated split."""
    images, captions, phrases = (
        len(table) for table in (subject.split.images, subject.split.captions, subject.split.phrases)
    )
    boxes = f" and {phrases:,} phrases with boxes" if phrases else ""
    return f"Split {subject.split_name}: {images:,} images with {captions:,} captions{boxes}."
