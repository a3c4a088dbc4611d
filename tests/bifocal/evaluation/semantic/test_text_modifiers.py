"""Text modifiers."""

from dataclasses import replace

from bifocal.evaluation import TextModifiers
from bifocal.evaluation.base import Subject


def test_text_modifiers_are_skipped_without_distinctive_words(subject: Subject) -> None:
    captions = subject.dataset.captions.assign(text="a dog")
    changed = replace(subject, dataset=replace(subject.dataset, captions=captions))
    assert "No word occurs" in TextModifiers()(changed).skipped
