"""Parameters of extract_features: what contradicts is refused, and what the README shows is
valid."""

import json
from pathlib import Path

import pytest
import yaml

from components.extract_features.spec import COMPONENT
from runtime.parameters import ParameterError
from tests.components.extract_features.section import GRID, PIXELS, validated

README = Path(__file__).parents[3] / "components" / "extract_features" / "README.md"
ARRAYS = {"name": "ImageArrays", "path": "arrays"}
CLASSIFIER = {"name": "TrainClassifier", "task": "shapes"}
PHRASES = {"name": "TrainOnPhrases"}


@pytest.mark.parametrize(
    ("extractor", "weights", "message"),
    [
        (ARRAYS, None, "batch_size is 8, but ImageArrays runs no network: set it to null"),
        (
            ARRAYS,
            "Pretrained",
            "weights is Pretrained, but ImageArrays reads published files: set it to null",
        ),
        (GRID, None, "weights is null, but Grid needs weights: name one of FromFile, Pretrained"),
        (PIXELS, PHRASES, "TrainOnPhrases trains a feature map, which Pixels does not have"),
        (
            "Proposals",
            PHRASES,
            "TrainOnPhrases needs images of one shape: set resize of Proposals to square",
        ),
        (
            GRID,
            CLASSIFIER,
            "TrainClassifier trains the backbone of Pixels or ImageFiles, not of Grid",
        ),
        (
            PIXELS,
            CLASSIFIER | {"path": "imagenet"},
            "task is 'shapes' and path is 'imagenet': set task",
        ),
        (PIXELS, "TrainClassifier", "task is None and path is None: set task"),
        (
            PIXELS,
            CLASSIFIER | {"start": PHRASES},
            "start is TrainOnPhrases, expected weights that are not trained",
        ),
        (GRID, PHRASES | {"epochs": 0}, "epochs is 0: expected 1 or more"),
        (GRID, PHRASES | {"learning_rate": 0.0}, "learning_rate is 0.0: expected more than 0"),
        (GRID, "FromFile", r"weights\.path: missing, and FromFile has no default for it"),
        ({**GRID, "path": "arrays"}, "Pretrained", "Grid takes no 'path'"),
    ],
)
def test_contradictory_parameters_are_errors_before_any_work(
    extractor: object, weights: object, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        validated(extractor=extractor, weights=weights)


def test_extraction_with_a_network_needs_a_batch_size() -> None:
    with pytest.raises(ParameterError, match="batch_size is null, but Grid runs a network"):
        validated(batch_size=None)


@pytest.mark.parametrize(
    ("extractor", "weights", "shardable"),
    [
        (GRID, "Pretrained", True),
        (GRID, PHRASES, False),
        (PIXELS, CLASSIFIER, False),
        (GRID, {"name": "FromFile", "path": "weights.safetensors"}, True),
        (ARRAYS, None, True),
    ],
)
def test_extraction_is_shardable_unless_something_is_learned_first(
    extractor: object, weights: object, shardable: bool
) -> None:
    batch_size = None if weights is None else 8
    assert (
        validated(extractor=extractor, weights=weights, batch_size=batch_size).shardable
        == shardable
    )


def test_user_paths_are_those_of_readers_and_weights() -> None:
    start = {"name": "FromFile", "path": "start.safetensors"}
    section = {"extractor": ARRAYS, "weights": CLASSIFIER | {"start": start}}
    assert COMPONENT.user_paths(section) == {
        ("extractor", "path"): "arrays",
        ("weights", "start", "path"): "start.safetensors",
    }


def test_sections_in_the_readme_are_valid() -> None:
    blocks = README.read_text().split("```yaml\n")[1:]
    assert blocks
    for block in blocks:
        validated(
            **json.loads(json.dumps(yaml.safe_load(block.split("```")[0])["extract_features"]))
        )
