"""A locator of phrases for the small subject."""

import pytest

from bifocal.evaluation.base import Subject
from bifocal.localization import SMILERegions
from bifocal.models.phrase_locator import PhraseLocator


@pytest.fixture(scope="session")
def locator(subject: Subject) -> PhraseLocator:
    return PhraseLocator(subject.model, SMILERegions(), subject.features, subject.vectorizer)
