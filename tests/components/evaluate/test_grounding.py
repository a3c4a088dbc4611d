"""Where things are: k chosen on validation, words inside a sentence, proposals, objects; on real artifacts."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from bifocal.datasets import Dataset, read_dataset
from bifocal.features import FeatureStore, FeatureWriter
from bifocal.image_encoders import BEANEncoder, MultiLevelEncoder
from bifocal.localization import (
    BEANHeatmap,
    MultiLevelHeatmap,
    SMILERegions,
    peak_points,
    phrase_heatmap,
    sentence_heatmap,
)
from bifocal.localization.base import RegionScores
from bifocal.metrics import box_iou
from bifocal.models import GroundingModel, TwoBranchModel, load_model
from bifocal.text.elmo.format import ElmoOptions
from bifocal.text.elmo.network import Elmo
from bifocal.text.vectorizers import ElmoLayers
from bifocal.text.vectorizers.base import FittedVectorizer, load_vectorizer
from bifocal.text_encoders import ElmoMixtureEncoder, GRUEncoder
from components.evaluate.grounding import ground
from components.evaluate.objects import search
from components.evaluate.pointer import Pointer, asked
from components.evaluate.proposals import are_proposals, phrase_localization
from components.evaluate.spec import EvaluateParams
from components.evaluate.tables import grounding_tables
from tests.components.evaluate.conftest import DIM, PARAMS, WORDS


def params(**changes: object) -> EvaluateParams:
    return EvaluateParams.model_validate_json(json.dumps(PARAMS | changes))


@pytest.fixture(scope="session")
def whole(artifacts: Path) -> Dataset:
    return read_dataset(artifacts / "dataset")


@pytest.fixture(scope="session")
def pointer(artifacts: Path) -> Pointer:
    store, reader = FeatureStore(artifacts / "features"), load_vectorizer(artifacts / "text")
    return Pointer(load_model(artifacts / "embedding"), SMILERegions(), store, reader)


def bean(pointer: Pointer) -> TwoBranchModel:
    torch.manual_seed(0)
    encoder = BEANEncoder(DIM, 40, maps=8, backbone=None)
    vocabulary_size = len(pointer.model.word_embedding.weight)
    model = TwoBranchModel(encoder, GRUEncoder(WORDS, 40), text_format="tokens", vocabulary_size=vocabulary_size)
    model.word_embedding = pointer.model.word_embedding
    return model.eval()


def test_k_is_chosen_on_validation_and_used_on_test(pointer: Pointer, whole: Dataset) -> None:
    model = bean(pointer)
    grounded = ground(params(), model, pointer.features, pointer.reader, whole)
    figures = grounded.figures["pointing"]

    def accuracy(k: int) -> float:
        fixed = params(split="val", pointing={"name": "BEANHeatmap", "k": k})
        found: float = ground(fixed, model, pointer.features, pointer.reader, whole).figures["pointing"]["accuracy"]
        return found

    on_val = {k: accuracy(k) for k in (1, 3, 8, 20, 40)}
    assert figures["accuracy_of_k"] == {str(k): pytest.approx(value) for k, value in on_val.items()}
    best = max(on_val.values())
    assert figures["k"] == min(k for k, value in on_val.items() if value == best)
    assert figures["chosen_on"] == len(whole.split("val").phrases)
    assert isinstance(grounded.pointer, Pointer)
    assert isinstance(grounded.pointer.localizer, BEANHeatmap)
    assert grounded.pointer.localizer.k == figures["k"]
    # Nothing is chosen on what is measured.
    there = ground(params(split="val"), model, pointer.features, pointer.reader, whole).figures["pointing"]
    assert (there["k"], there["chosen_on"]) == (180, 0)


def test_accuracy_of_each_category_is_the_share_of_its_phrases(pointer: Pointer, whole: Dataset) -> None:
    phrases = whole.phrases.assign(category=["a/b" if row % 3 == 0 else "b" for row in range(len(whole.phrases))])
    phrases.loc[1, "category"] = None
    grounded = ground(params(), pointer.model, pointer.features, pointer.reader, replace(whole, phrases=phrases))
    assert grounded.pointing is not None
    hits, names = grounded.pointing.hits, grounded.pointing.phrases["category"]
    found = grounded.figures["pointing"]["categories"]
    for category in ("a", "b"):
        members = [category in str(name).split("/") for name in names]
        assert found[category]["accuracy"] == pytest.approx(100 * hits[members].mean())
        assert found[category]["phrases"] == sum(members)
    assert list(found) == ["b", "a"]


def test_a_phrase_in_a_sentence_is_found_by_its_words_there(pointer: Pointer, whole: Dataset) -> None:
    split = whole.split("test")
    torch.manual_seed(0)
    vectorizer = ElmoLayers()
    vectorizer.elmo = Elmo(ElmoOptions(filters=((1, 4),), lstm_dim=4, projection_dim=4)).eval()
    texts = ElmoMixtureEncoder(vectorizer.format.dim, 6, layers=vectorizer.format.layers)
    model = GroundingModel(MultiLevelEncoder(DIM, 6, levels=1), texts, text_format="contextual").eval()
    reader = FittedVectorizer(vectorizer)
    few = replace(whole, phrases=split.phrases.iloc[:8])
    grounded = ground(params(), model, pointer.features, reader, few)
    assert grounded.pointing is not None
    assert grounded.pointer is not None
    # The first phrase as it is, and as one that stands in no sentence.
    rows = asked(split).iloc[[0, 0]].reset_index(drop=True)
    rows.at[1, "sentence"] = None
    located = grounded.pointer.locate(rows)
    sentence, phrase = rows["sentence"][0], rows["phrase"][0]
    with torch.inference_mode():
        regions = pointer.features.gather(pointer.features.rows([rows["image_id"][0]]))
        (cells,) = model.embed_images(regions)
        _, words = model.embed_captions(reader.vectorize([sentence]))
        alone, _ = model.embed_captions(reader.vectorize([phrase]))
        before = len(sentence[: sentence.index(phrase)].split())
        expected = phrase_heatmap(words[0, before : before + len(phrase.split())], cells)
        torch.testing.assert_close(located.scores[0], expected)
        torch.testing.assert_close(located.scores[1], sentence_heatmap(alone[0], cells))
        same = replace(grounded.pointer, localizer=MultiLevelHeatmap(text_context="phrase")).locate(rows)
        torch.testing.assert_close(same.scores, located.scores[[1, 1]])


def test_a_phrase_that_is_its_whole_sentence_stands_alone_and_equal_ones_are_counted(whole: Dataset) -> None:
    captions = pd.DataFrame({"caption_id": [0, 1], "image_id": ["x", "x"], "text": ["A man and a man.", "A dog!"]})
    columns = {"phrase_id": range(4), "image_id": "x", "phrase": ["a man", "a man", "a dog", "cat"]}
    phrases = pd.DataFrame(columns | {"caption_id": pd.array([0, 0, 1, None], dtype="Int64")})
    found = asked(replace(whole, captions=captions, phrases=phrases))
    assert list(found["sentence"]) == ["A man and a man.", "A man and a man.", None, None]
    assert list(found["number"]) == [0, 1, 0, 0]


def test_proposals_are_ranked_for_each_phrase(pointer: Pointer, whole: Dataset, tmp_path: Path) -> None:
    """The proposals of an image are its phrases' first boxes, and some others: a loop finds the best of each."""
    split, random = whole.split("test"), np.random.default_rng(0)
    sizes = split.images.set_index("image_id")[["width", "height"]].astype(float)
    with FeatureWriter(tmp_path, regions=9, dim=DIM, metadata={}) as writer:
        for image_id in split.images["image_id"]:
            own = [boxes[0] for boxes in split.phrases["boxes"][split.phrases["image_id"] == image_id]]
            boxes = np.unique(own, axis=0)[:8] / np.tile(sizes.loc[image_id], 2)
            boxes = np.concatenate([boxes, [[0, 0, 1, 1]]]).astype(np.float32)
            writer.add(image_id, random.normal(size=(len(boxes), DIM)).astype(np.float32), boxes)
    there = replace(pointer, features=FeatureStore(tmp_path))
    ids = list(split.images["image_id"][:3])
    assert are_proposals(there.see(ids))
    assert not are_proposals(pointer.see(ids))
    figures, precision = phrase_localization(there, split)
    found, possible = [], []
    located = there.locate(asked(split))
    for row, scores, boxes in zip(split.phrases.itertuples(), *located, strict=True):
        pixels = boxes.numpy() * np.tile(sizes.loc[row.image_id], 2)
        right = (box_iou(pixels, row.boxes) >= 0.5).any(axis=1) & scores.isfinite().numpy()
        found.append(bool(right[int(scores.argmax())]))
        possible.append(bool(right.any()))
    assert figures["R@1"] == pytest.approx(100 * np.mean(found))
    assert figures["upper_bound"] == pytest.approx(100 * np.mean(possible)) == figures["R@10"]
    assert figures["R@1"] < figures["upper_bound"]
    assert precision["count"].sum() == figures["phrases"] == len(split.phrases)
    assert figures["mAP"] == pytest.approx(precision["AP"].mean())
    (table,) = grounding_tables({"phrase_localization": figures})
    assert table.rows[0] == ("R@1", f"{figures['R@1']:.1f}", f"{figures['chance']['R@1']:.1f}")


def test_every_category_is_looked_for_in_every_image(pointer: Pointer, whole: Dataset) -> None:
    named = whole.phrases.drop_duplicates(["image_id", "category"])
    named = named.assign(phrase=named["category"], caption_id=pd.array([None] * len(named), dtype="Int64"))
    dataset = replace(whole, phrases=named.reset_index(drop=True))
    split = dataset.split("test")
    grounded = ground(params(), pointer.model, pointer.features, pointer.reader, dataset)
    figures = grounded.figures["objects"]
    assert {"point_mAP", "centre_mAP", "IoU@0.3", "IoU@0.4", "IoU@0.5"} <= figures.keys()
    assert figures["IoU@0.3"] >= figures["IoU@0.5"]
    assert figures["chosen_on"] == len(whole.split("val").images)
    assert figures["categories"] == split.phrases["category"].nunique()
    found = search(pointer, split)
    names, ids = sorted(set(split.phrases["category"])), list(split.images["image_id"])
    assert found.scores.shape == (len(names), len(ids))
    rows = asked(split)
    located = pointer.locate(rows)
    spots = peak_points(RegionScores(*located)).numpy() * 64  # scenes of 64 x 64 pixels
    for place, (category, image_id) in enumerate(rows[["category", "image_id"]].to_numpy()):
        where = names.index(category), ids.index(image_id)
        assert found.scores[where] == pytest.approx(float(located.scores[place].max()), abs=1e-5)
        assert found.points[where] == pytest.approx(spots[place])
        np.testing.assert_array_equal(found.boxes[where[0]][where[1]], rows["boxes"][place])
