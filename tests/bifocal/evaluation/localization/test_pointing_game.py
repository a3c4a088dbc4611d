"""Pointing game: tuned k, skipped subjects, accuracy by category."""

from dataclasses import replace
from typing import cast

import pandas as pd
import pytest
import torch

from bifocal.evaluation import PointingGame
from bifocal.evaluation.base import Subject
from bifocal.evaluation.localization.locator import choose_locator
from bifocal.image_encoders import BEANEncoder, LinearEncoder
from bifocal.localization import BEANHeatmap
from bifocal.localization.base import RegionScores
from bifocal.models import TwoBranchModel
from bifocal.models.phrase_locator import PhraseLocator, point_at_phrases
from bifocal.text_encoders import GRUEncoder
from tests.bifocal.evaluation.small import DIM, WORDS


@pytest.fixture
def bean_subject(subject: Subject) -> Subject:
    torch.manual_seed(0)
    embedding = subject.model.word_embedding
    assert embedding is not None
    model = TwoBranchModel(
        BEANEncoder(DIM, 40, maps=8, backbone=None),
        GRUEncoder(WORDS, 40),
        text_format="tokens",
        vocabulary_size=len(embedding.weight),
    )
    model.word_embedding = embedding
    return replace(subject, model=model.eval())


def test_pointing_game_tunes_k_on_validation(bean_subject: Subject) -> None:
    metrics = PointingGame()(bean_subject).metrics["pointing"]

    def accuracy(k: int) -> float:
        validation = replace(bean_subject, split_name="val")
        value: float = PointingGame(BEANHeatmap(k))(validation).metrics["pointing"]["accuracy"]
        return value

    on_val = {k: accuracy(k) for k in (1, 3, 8, 20, 40)}
    assert metrics["accuracy_of_k"] == {str(k): pytest.approx(value) for k, value in on_val.items()}
    best = max(on_val.values())
    assert metrics["k"] == min(k for k, value in on_val.items() if value == best)
    assert metrics["chosen_on"] == len(bean_subject.dataset.split("val").phrases)
    localizer = choose_locator(bean_subject, None).locator.localizer
    assert isinstance(localizer, BEANHeatmap)
    assert localizer.k == metrics["k"]


def test_pointing_game_keeps_default_k_if_validation_is_evaluated(bean_subject: Subject) -> None:
    metrics = PointingGame()(replace(bean_subject, split_name="val")).metrics["pointing"]
    assert (metrics["k"], metrics["chosen_on"]) == (180, 0)


def test_pointing_game_is_skipped_with_reason(subject: Subject) -> None:
    without = replace(subject.dataset, phrases=subject.dataset.phrases.iloc[:0])
    assert "no phrases with boxes" in PointingGame()(replace(subject, dataset=without)).skipped
    model = TwoBranchModel(
        LinearEncoder(DIM, 6), GRUEncoder(WORDS, 6), text_format="tokens", vocabulary_size=9
    )
    assert "LinearEncoder has no localizer" in PointingGame()(replace(subject, model=model)).skipped


def test_pointing_game_accuracy_by_category_is_share_of_its_phrases(
    subject: Subject, locator: PhraseLocator
) -> None:
    phrases = subject.dataset.phrases
    phrases = phrases.assign(
        category=["a/b" if row % 3 == 0 else "b" for row in range(len(phrases))]
    )
    phrases.loc[1, "category"] = None
    changed = replace(subject, dataset=replace(subject.dataset, phrases=phrases))
    by_category = PointingGame()(changed).metrics["pointing"]["categories"]
    pointing = point_at_phrases(locator, changed.split)
    for category in ("a", "b"):
        members = [category in str(name).split("/") for name in pointing.phrases["category"]]
        assert by_category[category]["accuracy"] == pytest.approx(
            100 * pointing.hits[members].mean()
        )
        assert by_category[category]["phrases"] == sum(members)
    assert list(by_category) == ["b", "a"]


def test_phrases_with_words_that_no_training_caption_has(
    subject: Subject, locator: PhraseLocator
) -> None:
    """The thesis, figure 4.8, as a share: against loops over the phrases."""
    pointing = point_at_phrases(locator, subject.split)
    seen = sorted({word for text in pointing.phrases["phrase"] for word in text.lower().split()})[
        1:
    ]
    captions = subject.dataset.captions
    of_training = captions["image_id"].isin(subject.dataset.split("train").images["image_id"])
    captions = captions.assign(text=captions["text"].mask(of_training, " ".join(seen)))
    changed = replace(subject, dataset=replace(subject.dataset, captions=captions))
    metrics = PointingGame()(changed).metrics["pointing"]
    unseen = [
        any(word not in seen for word in text.lower().split())
        for text in pointing.phrases["phrase"]
    ]
    hits = [bool(hit) for hit, without in zip(pointing.hits, unseen, strict=True) if without]
    assert 0 < len(hits) < len(unseen)
    assert metrics["unseen_words"]["phrases"] == len(hits)
    assert metrics["unseen_words"]["accuracy"] == pytest.approx(100 * sum(hits) / len(hits))
    assert {row.name for row in PointingGame()(changed).metric_rows()} >= {"pointing.unseen_words"}
    without = replace(subject, dataset=replace(subject.dataset, captions=captions[~of_training]))
    assert "unseen_words" not in PointingGame()(without).metrics["pointing"]


def test_phrases_of_small_boxes_are_left_out(subject: Subject, locator: PhraseLocator) -> None:
    everything = point_at_phrases(locator, subject.split)
    areas = []
    for boxes, (width, height) in zip(
        everything.phrases["boxes"], everything.sizes.tolist(), strict=True
    ):
        x, y = boxes[:, [0, 2]].ravel().tolist(), boxes[:, [1, 3]].ravel().tolist()
        areas.append((max(x) - min(x)) * (max(y) - min(y)) / (width * height))
    limit = sorted(areas)[len(areas) // 2]
    large = [area >= limit for area in areas]
    metrics = PointingGame(min_area=limit)(subject).metrics["pointing"]
    assert 0 < metrics["phrases"] == sum(large) < len(areas)
    assert metrics["accuracy"] == pytest.approx(100 * everything.hits[large].mean())
    with pytest.raises(ValueError, match=r"no phrase has boxes that cover 1\.1 of the image"):
        PointingGame(min_area=1.1)(subject)


def test_a_phrase_without_a_peak_is_a_miss(subject: Subject, locator: PhraseLocator) -> None:
    expected = point_at_phrases(locator, subject.split)
    assert expected.hits.any()

    class Nothing:
        def locate(self, phrases: pd.DataFrame) -> RegionScores:
            scores, boxes = locator.locate(phrases)
            return RegionScores(scores * 0, boxes)

    nowhere = point_at_phrases(cast(PhraseLocator, Nothing()), subject.split)
    assert not nowhere.hits.any()
    assert not nowhere.corner_hits.any()
    metrics = PointingGame()(subject).metrics["pointing"]
    assert metrics["corner_accuracy"] == pytest.approx(100 * expected.corner_hits.mean())
