"""Captions against their edits."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.evaluation import Compositionality
from bifocal.evaluation.base import Subject
from bifocal.evaluation.compositionality.choices import score_margins
from bifocal.evaluation.compositionality.compositionality import edited_captions, edits

KEEPS_WORDS = ("attributes", "nouns", "order")


def test_margins_are_differences_of_scores(subject: Subject):
    choices = edited_captions(subject.split.captions).head(40)
    margins = score_margins(subject, choices)
    assert subject.image_embeddings is not None
    for margin, row in zip(margins[::7], choices.iloc[::7].itertuples(), strict=True):
        image = subject.image_embeddings[subject.pairs.image_ids.index(row.image_id)].double()
        with torch.inference_mode():
            text = subject.model.embed_captions(
                subject.vectorizer.vectorize([row.caption, row.edited])
            ).double()
        scores = [float(image @ vector / image.norm() / vector.norm()) for vector in text]
        assert margin == pytest.approx(scores[0] - scores[1], abs=1e-6)


def test_a_bag_of_words_is_at_chance_where_the_words_stay(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
):
    def bag(self, vectors, lengths):
        return torch.nn.functional.normalize(
            vectors.sum(dim=1)[:, :1].repeat(1, 6) + torch.arange(6), dim=1
        )

    monkeypatch.setattr(type(subject.model.text_encoder), "forward", bag)
    result = Compositionality()(replace(subject))
    for name in KEEPS_WORDS:
        assert result.metrics["compositionality"][name]["accuracy"] == 50.0
    relation = result.metrics["compositionality"]["relation"]
    assert relation["accuracy"] != 50.0
    assert 0 <= relation["low"] <= relation["accuracy"] <= relation["high"] <= 100


def test_a_model_of_pairs_is_scored_like_its_score_matrix(grounding_subject: Subject):
    choices = edited_captions(grounding_subject.split.captions).head(30)
    margins = score_margins(grounding_subject, choices)
    model, pairs = grounding_subject.model, grounding_subject.pairs
    with torch.inference_mode():
        cells = torch.cat([model.embed_images(regions) for regions in pairs.image_batches(4)])
        for margin, row in zip(margins[::5], choices.iloc[::5].itertuples(), strict=True):
            text = grounding_subject.vectorizer.vectorize([row.caption, row.edited])
            scores = model.score(cells, model.embed_captions(text)).cross[
                pairs.image_ids.index(row.image_id)
            ]
            assert margin == pytest.approx(float(scores[0] - scores[1]), abs=1e-5)
    assert np.abs(margins).max() > 0


def test_the_report_lists_wrong_choices(subject: Subject):
    result = Compositionality()(replace(subject, shown=2))
    assert {row.name for row in result.metric_rows()} >= {
        "compositionality.attributes",
        "compositionality.order",
    }
    table = result.report_sections()[0].blocks[-1]
    assert all(len(row) == 3 for row in table.rows)


def test_captions_without_an_edit_are_skipped(subject: Subject, tmp_path: Path):
    split = replace(subject.split, captions=subject.split.captions.assign(text="Hello"))
    other = replace(subject)
    other.__dict__["split"] = split
    assert "No rule" in Compositionality()(other).skipped


@pytest.mark.parametrize(
    ("caption", "name", "edited"),
    [
        ("A red star above an orange ring.", "attributes", "an orange star above a red ring"),
        ("A small dog and two large cats", "attributes", "a large dog and two small cats"),
        ("A man in a black and white shirt", "attributes", None),
        ("An orange star above two blue rings", "attributes", None),
        ("A man with a dog", "nouns", "a dog with a man"),
        ("A man and a woman", "nouns", None),
        ("Two horses beside a child", "nouns", "two child beside a horses"),
        ("A boy in front of a blue box", "relation", "a boy behind a blue box"),
        ("A star behind a ring", "relation", "a star in front of a ring"),
        ("A star lower down than a ring", "relation", "a star higher down than a ring"),
        ("Two stars and three rings", "count", "three stars and two rings"),
        ("Two dogs run", "count", "three dogs run"),
        ("A dog runs", "count", None),
        (
            "A red plus sign but no orange ring on sand.",
            "negation",
            "an orange ring but no red plus sign on sand",
        ),
        ("A man with a hat", "negation", "a man without a hat"),
        ("A dog runs", "negation", None),
        ("no dog", "negation", None),
    ],
)
def test_an_edit_describes_another_image(caption, name, edited):
    assert edits(caption)[1].get(name) == edited


def test_a_shuffle_depends_on_the_caption_alone_and_keeps_its_words():
    caption, changed = edits("A dog runs over wet grass.")
    assert changed["order"] == edits(caption)[1]["order"] != caption
    assert Counter(changed["order"].split()) == Counter(caption.split())
    assert "order" not in edits("Dogs")[1]
