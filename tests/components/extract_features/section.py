"""A section of extract_features with small networks."""

from typing import Any

from components.extract_features.spec import COMPONENT, ExtractFeaturesParams
from runtime import parameters

MODEL = {"channels": [8, 16, 24, 32], "stem_width": 8}
GRID = {"name": "Grid", "backbone": "resnet10t", "stage": 3, "size": 64, "model_arguments": MODEL}
PIXELS = {"name": "Pixels", "size": 64, "backbone": "resnet10t", "model_arguments": MODEL}
SECTION: dict[str, Any] = {
    "extractor": GRID,
    "weights": {
        "name": "TrainOnPhrases",
        "epochs": 2,
        "batch_size": 8,
        "learning_rate": 0.004,
        "min_count": 2,
    },
    "batch_size": 8,
    "images_per_file": 7,
}


def validated(**changes: object) -> ExtractFeaturesParams:
    sections = parameters.validate(
        {"seed": 0, "extract_features": {**SECTION, **changes}}, [COMPONENT]
    )
    params = sections["extract_features"]
    assert isinstance(params, ExtractFeaturesParams)
    return params
