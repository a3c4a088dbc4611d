"""The initialization ClassNames against scikit-learn's ridge regression, and a training that starts from it."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import Ridge

from bifocal.backbones.classes import imagenet_classes
from bifocal.datasets import read_dataset
from bifocal.features import FeatureWriter, open_features
from bifocal.models import load_model
from bifocal.text.transformer.tiny import write_tiny_transformer
from bifocal.text.vectorizers import SentenceVectors
from bifocal.text.vectorizers.base import FittedVectorizer, write_text
from bifocal.training.initialization.class_names import ClassNames
from components.train_embedding.run import run
from tests.components.train_embedding.conftest import Scened
from tests.components.train_embedding.section import validated

CHANNELS, DIM = 12, 8
LINEAR = {"name": "TwoBranchModel", "dim": DIM, "image_encoder": "LinearEncoder", "text_encoder": "LinearEncoder"}


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a classifier that is a convolution, as some networks of timm have it."""
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    generator = torch.Generator().manual_seed(0)
    save_file({"classifier.weight": 1 + torch.randn(1000, CHANNELS, 1, 1, generator=generator)}, path)
    return path


@pytest.fixture(scope="module")
def vectorizer() -> SentenceVectors:
    vectorizer = SentenceVectors(path=write_tiny_transformer(["goldfish dog cat shark tiger"], dim=DIM))
    vectorizer.fit([], seed=0)
    return vectorizer


@pytest.fixture(scope="module")
def artifacts(scened: Scened, vectorizer: SentenceVectors, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = scened(6, 3) | {"text": tmp_path_factory.mktemp("text")}
    captions = read_dataset(paths["dataset"]).captions
    write_text(paths["text"], vectorizer, captions["caption_id"], list(captions["text"]))
    random = torch.Generator().manual_seed(0)
    ids = [*pd.read_parquet(paths["dataset"] / "images.parquet")["image_id"]]
    with FeatureWriter(
        paths["features"], regions=2, dim=CHANNELS, metadata={"weights": "a"}, images_per_file=64
    ) as writer:
        for image_id in ids:
            writer.add(str(image_id), torch.rand(2, CHANNELS, generator=random).numpy())
    return paths


def test_projection_is_the_ridge_regression_of_the_classifier_on_the_names(
    weights: Path, vectorizer: SentenceVectors
) -> None:
    found = ClassNames(weights, regularization=2.0).fit(FittedVectorizer(vectorizer), CHANNELS).numpy()
    names = imagenet_classes().names
    assert [names[1][0], names[207][0], len(names)] == ["goldfish", "golden retriever", 1000]
    classifier = load_file(weights)["classifier.weight"].numpy().reshape(1000, CHANNELS)
    classifier = classifier - classifier.mean(axis=0)
    x = np.stack([vectorizer.transform([name]).values[0] for synonyms in names for name in synonyms])
    y = np.stack([classifier[row] for row, synonyms in enumerate(names) for _ in synonyms])
    expected = Ridge(alpha=2.0, fit_intercept=False).fit(x.astype(float), y.astype(float)).coef_.T
    expected *= CHANNELS**-0.5 / np.sqrt((expected**2).mean())
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_without_phases_the_model_is_the_fit(artifacts: dict[str, Path], weights: Path, tmp_path: Path) -> None:
    initialization = {"name": "ClassNames", "path": str(weights)}
    run(validated(model=LINEAR, phases=[], initialization=initialization), **artifacts, embedding=tmp_path)
    model = load_model(tmp_path)
    assert model.text_encoder.projection.weight.equal(torch.eye(DIM))
    assert not model.text_encoder.projection.bias.any()
    # The mean training image is the origin, so that cosines differ.
    tables = read_dataset(artifacts["dataset"])
    store = open_features(artifacts["features"], tables)
    means = store.gather(store.rows(tables.split("train").images["image_id"])).features.float().mean(dim=(0, 1))
    assert model.image_encoder.projection(means).detach().numpy() == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": DIM + 1}, f"dim of the model is {DIM + 1}: set it to {DIM}"),
        ({"path": "other"}, "has 0 tensors of 1000 classes by 12 channels"),
    ],
)
def test_misfits_are_explained(
    artifacts: dict[str, Path], weights: Path, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    other = tmp_path / "other.safetensors"
    save_file({"classifier.weight": torch.zeros(10, CHANNELS)}, other)
    initialization = {"name": "ClassNames", "path": str(other if "path" in change else weights)}
    model = LINEAR | {"dim": change.get("dim", DIM)}
    with pytest.raises(ValueError, match=message):
        run(validated(model=model, phases=[], initialization=initialization), **artifacts, embedding=tmp_path)


def test_regularization_is_positive() -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        ClassNames("weights.safetensors", regularization=0.0)
