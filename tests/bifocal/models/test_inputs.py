"""A model refuses features and texts other than its training's."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bifocal.features import FeatureStore, FeatureWriter
from bifocal.models import build_model, load_model, save_model
from bifocal.models.inputs import check_inputs, input_identity
from bifocal.text import TextStore
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import write_text

SENTENCES = ["a red star", "a blue square", "two red squares", "a green star"]


def new_text(folder: Path, captions: list[str]) -> TextStore:
    folder.mkdir()
    vectorizer = TFIDF(min_count=1)
    vectorizer.fit(SENTENCES if captions is SENTENCES else captions, seed=0)
    write_text(folder, vectorizer, list(range(len(captions))), captions)
    return TextStore(folder)


def new_features(folder: Path, images: int = 2, **metadata: object) -> FeatureStore:
    folder.mkdir()
    described = {"extractor": "Grid", "weights": "ab12", "files": images} | metadata
    with FeatureWriter(folder, regions=1, dim=3, metadata=described) as writer:
        for number in range(images):
            writer.add(str(number), np.ones((1, 3), np.float32))
    return FeatureStore(folder)


def test_a_saved_model_refuses_other_features_and_other_texts(tmp_path: Path) -> None:
    features, text = new_features(tmp_path / "features"), new_text(tmp_path / "text", SENTENCES)
    torch.manual_seed(0)
    model = build_model(
        {
            "name": "TwoBranchModel",
            "dim": 4,
            "image_encoder": "LinearEncoder",
            "text_encoder": "BagOfWordsEncoder",
        },
        feature_dim=features.dim,
        text_dim=text.dim,
        text_format=text.format.name,
        inputs=input_identity(features, text),
    )
    (tmp_path / "model").mkdir()
    save_model(tmp_path / "model", model)
    loaded = load_model(tmp_path / "model")
    check_inputs(loaded, features, text)
    # Other images with the same extraction: the model can be evaluated on another dataset.
    check_inputs(loaded, new_features(tmp_path / "more", images=3), text)
    with pytest.raises(
        ValueError, match=r"features have weights 'cd34', but the model was trained on .* 'ab12'"
    ):
        check_inputs(loaded, new_features(tmp_path / "other", weights="cd34"), text)
    with pytest.raises(ValueError, match="has another vectorizer than the model was trained with"):
        check_inputs(
            loaded, features, new_text(tmp_path / "another", ["a green circle", "a red circle"])
        )


def test_a_model_that_remembers_no_inputs_accepts_any(tmp_path: Path) -> None:
    features, text = new_features(tmp_path / "features"), new_text(tmp_path / "text", SENTENCES)
    parts = {"image_encoder": "LinearEncoder", "text_encoder": "BagOfWordsEncoder"}
    model = build_model(
        {"name": "TwoBranchModel", "dim": 4, **parts},
        feature_dim=features.dim,
        text_dim=text.dim,
        text_format=text.format.name,
    )
    check_inputs(model, features, text)
