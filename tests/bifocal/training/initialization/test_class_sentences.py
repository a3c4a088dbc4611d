"""Class probabilities times sentence vectors of classes, against loops over the equation, and its
errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bifocal.backbones.classes import Classes
from bifocal.training import new_model
from bifocal.training.initialization import CCA, ClassSentences, class_sentences
from bifocal.training.members import train_members
from bifocal.training.validators import Recall
from tests.bifocal.pointing_heads import DEFINITIONS, NAMES
from tests.bifocal.training.initialization.three_classes import (
    CAPTIONS,
    METADATA,
    OTHER,
    WIDTH,
    build,
)


@pytest.fixture(autouse=True)
def classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the three classes of the other tests in place of the 1,000 of ImageNet."""
    monkeypatch.setattr(class_sentences, "imagenet_classes", lambda: Classes(NAMES, DEFINITIONS))


def unit(vector: list[float]) -> list[float]:
    norm = sum(value * value for value in vector) ** 0.5
    return [value / norm for value in vector]


def test_scores_are_the_equation(tmp_path: Path) -> None:
    world = build(tmp_path)
    assert ClassSentences().apply(world.model, world.inputs, seed=0) == {"classes": 3.0}

    def sentence(text: str) -> list[float]:
        return unit(world.sentences.transform([text]).values[0].astype(float).tolist())

    vectors = []
    for names, definition in zip(NAMES, DEFINITIONS, strict=True):
        summed = unit(
            [sum(values) for values in zip(*(sentence(name) for name in names), strict=True)]
        )
        vectors.append(unit([a + b for a, b in zip(summed, sentence(definition), strict=True)]))
    center = [sum(vector[d] for vector in vectors) / 3 for d in range(WIDTH)]
    roots = world.features[:, OTHER:].tolist()
    means = [sum(row[k] for row in roots[:3]) / 3 for k in range(3)]
    expected = []
    for row in roots:
        image = [
            sum((row[k] - means[k]) * (vectors[k][d] - center[d]) for k in range(3))
            for d in range(WIDTH)
        ]
        texts = [sentence(caption) for caption in CAPTIONS]
        expected.append(
            [sum(a * b for a, b in zip(unit(image), text, strict=True)) for text in texts]
        )
    model = world.model.eval()
    with torch.inference_mode():
        images = model.embed_images(world.inputs.features.gather([0, 1, 2, 3]))
        captions = model.embed_captions(world.inputs.text.gather([0, 1, 2, 3]))
    assert (images @ captions.T).numpy() == pytest.approx(np.array(expected), abs=1e-3)


@pytest.mark.parametrize("recalls", [(300.0, 301.0), (300.0, 300.0)])
def test_the_member_is_left_out_unless_it_raises_the_recall_of_val(
    tmp_path: Path, recalls: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, values = build(tmp_path), iter([*recalls, recalls[1]])
    monkeypatch.setattr(
        Recall, "prepare", lambda self, inputs: lambda model: {"recall_sum": next(values)}
    )
    trained = train_members(
        lambda seed: new_model(world.reference, world.inputs),
        list,
        world.inputs,
        checkpoints=tmp_path / "checkpoints",
        initialization=CCA(regularization=1.0),
        closed_form=[ClassSentences()],
    )
    assert trained.model.config["members"] == 1 + (recalls[1] > recalls[0])
    assert ("classes" in trained.metrics) == (recalls[1] > recalls[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dim": 7}, "dim is 7: set it to 8 or more"),
        ({"standardize": False}, "set standardize to true"),
        ({"sentences": False}, "TFIDF has no SentenceVectors"),
        (
            {"metadata": {**METADATA, "extractor": "Grid"}},
            "extractor Grid, .* expected PooledLayers",
        ),
        ({"metadata": {**METADATA, "classes": False}}, "classes False"),
        (
            {"metadata": {**METADATA, "backbone": "resnet18"}},
            "1000 classes: expected .* the 3 classes",
        ),
    ],
)
def test_inputs_without_classes_or_sentences_are_errors(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    world = build(tmp_path, **change)
    with pytest.raises(ValueError, match=message):
        ClassSentences().apply(world.model, world.inputs, seed=0)
