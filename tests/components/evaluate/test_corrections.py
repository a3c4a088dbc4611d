"""Corrections that a model answers, as the report counts them."""

from dataclasses import replace
from pathlib import Path

from bifocal.datasets.corrections import FOUND
from bifocal.models.batch import ImageCaptionPairs, dual_encoder, embed
from components.evaluate.run import corrections_sentence
from tests.bifocal.evaluation.small import read_subject


def test_corrections_are_counted_by_a_search_of_all_images(artifacts: Path) -> None:
    subject = read_subject(artifacts)
    tables, ids = subject.dataset, subject.dataset.images["image_id"].tolist()
    pairs = ImageCaptionPairs(tables, subject.features, subject.text)
    images, captions = embed(dual_encoder(subject.model), pairs)
    assert len(ids) > FOUND
    orders = (captions @ images.T).argsort(dim=1, descending=True).tolist()
    rows, expected = [], 0
    for number, order in enumerate(orders):
        for place, right in ((0, True), (FOUND - 1, True), (FOUND, True), (0, False), (1, False)):
            rows.append((number, ids[order[place]], right))
            expected += place < FOUND if right else place > 0
    chosen = tables.captions.iloc[[row for row, _, _ in rows]].assign(
        image_id=[image_id for _, image_id, _ in rows], right=[right for _, _, right in rows]
    )
    taught = replace(subject, dataset=replace(tables, corrections=chosen))
    assert corrections_sentence(taught) == (
        f" The model answers {expected} of {len(rows)} corrections."
    )
    assert not corrections_sentence(subject)
