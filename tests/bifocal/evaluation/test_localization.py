"""Pointing game, phrase localization and object localization on a small model."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets.formats.masks import encode_mask
from bifocal.evaluation import ObjectLocalization, PhraseLocalization, PointingGame
from bifocal.evaluation.base import Subject
from bifocal.evaluation.localization.locator import choose_locator
from bifocal.evaluation.localization.object_maps import localize_objects, true_mask
from bifocal.evaluation.localization.phrase_localization import regions_are_proposals
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.image_encoders import BEANEncoder, LinearEncoder, MultiLevelEncoder
from bifocal.localization import (
    BEANHeatmap,
    MultiLevelHeatmap,
    SMILERegions,
    peak_points,
    phrase_heatmap,
    sentence_heatmap,
)
from bifocal.localization.phrase_locator import PhraseLocator, phrases_in_context
from bifocal.localization.pointing import point_at_phrases
from bifocal.metrics import box_iou
from bifocal.models import GroundingModel, TwoBranchModel
from bifocal.text.elmo.format import ElmoOptions
from bifocal.text.elmo.network import Elmo
from bifocal.text.vectorizers import ElmoLayers
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.text_encoders import ElmoMixtureEncoder, GRUEncoder
from tests.bifocal.evaluation.small import DIM, WORDS


@pytest.fixture(scope="session")
def locator(subject: Subject) -> PhraseLocator:
    return PhraseLocator(subject.model, SMILERegions(), subject.features, subject.vectorizer)


@pytest.fixture
def bean_subject(subject: Subject) -> Subject:
    torch.manual_seed(0)
    embedding = subject.model.word_embedding
    assert embedding is not None
    model = TwoBranchModel(
        BEANEncoder(DIM, 40, maps=8, backbone=None), GRUEncoder(WORDS, 40),
        text_format="tokens", vocabulary_size=len(embedding.weight),
    )  # fmt: skip
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
    model = TwoBranchModel(LinearEncoder(DIM, 6), GRUEncoder(WORDS, 6), text_format="tokens", vocabulary_size=9)
    assert "LinearEncoder has no localizer" in PointingGame()(replace(subject, model=model)).skipped


def test_pointing_game_accuracy_by_category_is_share_of_its_phrases(subject: Subject, locator: PhraseLocator) -> None:
    phrases = subject.dataset.phrases
    phrases = phrases.assign(category=["a/b" if row % 3 == 0 else "b" for row in range(len(phrases))])
    phrases.loc[1, "category"] = None
    changed = replace(subject, dataset=replace(subject.dataset, phrases=phrases))
    by_category = PointingGame()(changed).metrics["pointing"]["categories"]
    pointing = point_at_phrases(locator, changed.split)
    for category in ("a", "b"):
        members = [category in str(name).split("/") for name in pointing.phrases["category"]]
        assert by_category[category]["accuracy"] == pytest.approx(100 * pointing.hits[members].mean())
        assert by_category[category]["phrases"] == sum(members)
    assert list(by_category) == ["b", "a"]


def test_locator_uses_words_of_phrase_in_its_sentence(subject: Subject) -> None:
    torch.manual_seed(0)
    vectorizer = ElmoLayers()
    vectorizer.elmo = Elmo(ElmoOptions(filters=((1, 4),), lstm_dim=4, projection_dim=4)).eval()
    texts = ElmoMixtureEncoder(vectorizer.format.dim, 6, layers=vectorizer.format.layers)
    model = GroundingModel(MultiLevelEncoder(DIM, 6, levels=1), texts, text_format="contextual").eval()
    fitted = FittedVectorizer(vectorizer)
    few = replace(subject.dataset, phrases=subject.split.phrases.iloc[:8])
    grounding = replace(subject, model=model, vectorizer=fitted, dataset=few)
    assert not PointingGame()(grounding).skipped
    locator = choose_locator(grounding, None).locator
    # The first phrase twice, once without its sentence.
    rows = phrases_in_context(subject.split).iloc[[0, 0]].reset_index(drop=True)
    rows.at[1, "sentence"] = None
    scores = locator.locate(rows).scores
    sentence, phrase = rows["sentence"][0], rows["phrase"][0]
    with torch.inference_mode():
        regions = subject.features.gather(subject.features.rows([rows["image_id"][0]]))
        (cells,) = model.embed_images(regions)
        _, words = model.embed_captions(fitted.vectorize([sentence]))
        alone, _ = model.embed_captions(fitted.vectorize([phrase]))
        before = len(sentence[: sentence.index(phrase)].split())
        expected = phrase_heatmap(words[0, before : before + len(phrase.split())], cells)
        torch.testing.assert_close(scores[0], expected)
        torch.testing.assert_close(scores[1], sentence_heatmap(alone[0], cells))
        without_context = replace(locator, localizer=MultiLevelHeatmap(text_context="phrase")).locate(rows)
        torch.testing.assert_close(without_context.scores, scores[[1, 1]])


def test_phrases_in_context_counts_occurrences_and_drops_equal_sentence(subject: Subject) -> None:
    captions = pd.DataFrame({"caption_id": [0, 1], "image_id": ["x", "x"], "text": ["A man and a man.", "A dog!"]})
    columns = {"phrase_id": range(4), "image_id": "x", "phrase": ["a man", "a man", "a dog", "cat"]}
    phrases = pd.DataFrame(columns | {"caption_id": pd.array([0, 0, 1, None], dtype="Int64")})
    table = phrases_in_context(replace(subject.dataset, captions=captions, phrases=phrases))
    assert list(table["sentence"]) == ["A man and a man.", "A man and a man.", None, None]
    assert list(table["occurrence"]) == [0, 1, 0, 0]


def test_phrase_localization_ranks_proposals_of_each_phrase(
    subject: Subject, locator: PhraseLocator, tmp_path: Path
) -> None:
    """The proposals of an image are the first boxes of its phrases and the whole image; the reference is a loop."""
    split, random = subject.split, np.random.default_rng(0)
    sizes = split.images.set_index("image_id")[["width", "height"]].astype(float)
    with FeatureWriter(tmp_path, regions=9, dim=DIM, metadata={}) as writer:
        for image_id in split.images["image_id"]:
            first_boxes = [boxes[0] for boxes in split.phrases["boxes"][split.phrases["image_id"] == image_id]]
            boxes = np.unique(first_boxes, axis=0)[:8] / np.tile(sizes.loc[image_id], 2)
            boxes = np.concatenate([boxes, [[0, 0, 1, 1]]]).astype(np.float32)
            writer.add(image_id, random.normal(size=(len(boxes), DIM)).astype(np.float32), boxes)
    proposals = replace(subject, features=FeatureStore(tmp_path))
    image_ids = list(split.images["image_id"][:3])
    assert regions_are_proposals(replace(locator, features=proposals.features).encode(image_ids))
    assert not regions_are_proposals(locator.encode(image_ids))
    assert "cells of a grid" in PhraseLocalization()(subject).skipped
    result = PhraseLocalization()(proposals)
    metrics, precision = result.metrics["phrase_localization"], result.tables["phrase_precision"]
    first_is_correct, any_is_correct = [], []
    regions = replace(locator, features=proposals.features).locate(phrases_in_context(split))
    for row, scores, boxes in zip(split.phrases.itertuples(), *regions, strict=True):
        pixels = boxes.numpy() * np.tile(sizes.loc[row.image_id], 2)
        correct = (box_iou(pixels, row.boxes) >= 0.5).any(axis=1) & scores.isfinite().numpy()
        first_is_correct.append(bool(correct[int(scores.argmax())]))
        any_is_correct.append(bool(correct.any()))
    assert metrics["R@1"] == pytest.approx(100 * np.mean(first_is_correct))
    assert metrics["upper_bound"] == pytest.approx(100 * np.mean(any_is_correct)) == metrics["R@10"]
    assert metrics["R@1"] < metrics["upper_bound"]
    assert precision["count"].sum() == metrics["phrases"] == len(split.phrases)
    assert metrics["mAP"] == pytest.approx(precision["AP"].mean())
    row = result.metric_rows()[0]
    assert (row.name, row.value) == ("phrase_localization.R@1", metrics["R@1"])
    assert row.baselines == {"chance": metrics["chance"]["R@1"]}


def test_object_localization_searches_every_category_in_every_image(subject: Subject, locator: PhraseLocator) -> None:
    assert "name of a category" in ObjectLocalization()(subject).skipped
    named = subject.dataset.phrases.drop_duplicates(["image_id", "category"])
    named = named.assign(phrase=named["category"], caption_id=pd.array([None] * len(named), dtype="Int64"))
    objects = replace(subject, dataset=replace(subject.dataset, phrases=named.reset_index(drop=True)))
    split = objects.split
    metrics = ObjectLocalization()(objects).metrics["objects"]
    assert {"point_mAP", "centre_mAP", "IoU@0.3", "IoU@0.4", "IoU@0.5"} <= metrics.keys()
    assert metrics["IoU@0.3"] >= metrics["IoU@0.5"]
    assert metrics["chosen_on"] == len(subject.dataset.split("val").images)
    assert metrics["categories"] == split.phrases["category"].nunique()
    maps = localize_objects(locator, split)
    names, ids = sorted(set(split.phrases["category"])), list(split.images["image_id"])
    assert maps.scores.shape == (len(names), len(ids))
    rows = phrases_in_context(split)
    regions = locator.locate(rows)
    positions = peak_points(regions).numpy() * 64  # scenes of 64 x 64 pixels
    for row, (category, image_id) in enumerate(rows[["category", "image_id"]].to_numpy()):
        cell = names.index(category), ids.index(image_id)
        assert maps.scores[cell] == pytest.approx(float(regions.scores[row].max()), abs=1e-5)
        assert maps.points[cell] == pytest.approx(positions[row])
        np.testing.assert_array_equal(maps.boxes[cell[0]][cell[1]], rows["boxes"][row])


def test_true_mask_is_segmentation_or_boxes() -> None:
    left = np.zeros((32, 64), dtype=bool)
    left[:, :16] = True
    right_box = np.array([[32.0, 0, 64, 32]])
    assert true_mask(encode_mask(left), right_box, 64, 32).sum(dim=0).tolist() == [64] * 16 + [0] * 48
    assert true_mask(None, right_box, 64, 32).sum(dim=0).tolist() == [0] * 32 + [64] * 32


def test_object_localization_uses_segmentations(subject: Subject) -> None:
    """Each mask is the box of its phrase, so the metrics equal those of boxes; emptied masks give 0."""
    named = subject.dataset.phrases.drop_duplicates(["image_id", "category"])
    named = named.assign(phrase=named["category"], caption_id=pd.array([None] * len(named), dtype="Int64"))
    pixels = (np.arange(64) + 0.5)[:, None, None], (np.arange(64) + 0.5)[None, :, None]
    masks = []
    for boxes in named["boxes"]:
        inside = (boxes[:, 1] <= pixels[0]) & (pixels[0] < boxes[:, 3]) & (boxes[:, 0] <= pixels[1])
        masks.append(encode_mask((inside & (pixels[1] < boxes[:, 2])).any(axis=2)))

    def metrics(mask: object) -> dict[str, float]:
        dataset = replace(subject.dataset, phrases=named.assign(mask=mask).reset_index(drop=True))
        values: dict[str, float] = ObjectLocalization()(replace(subject, dataset=dataset)).metrics["objects"]
        return values

    from_boxes, from_masks = metrics(None), metrics(masks)
    assert from_masks["segmented"] == len(named[named["image_id"].str.startswith("test")])
    assert from_boxes["segmented"] == 0
    assert from_masks | {"segmented": 0} == from_boxes
    assert metrics(encode_mask(np.zeros((64, 64), dtype=bool)))["IoU@0.3"] == 0.0
