"""Signature of registered models, as MLflow's scoring server applies it to JSON."""

import json
from typing import Any

import pandas as pd
import pytest
from mlflow.models.utils import _enforce_schema
from mlflow.pyfunc.scoring_server import infer_and_parse_data

from runtime.mlflow.registry import COLUMNS, input_schema


def parse(payload: dict[str, Any], columns: tuple[str, ...] = tuple(COLUMNS)) -> list[dict[str, Any]]:
    """Rows that the model receives for the JSON ``payload``."""
    schema = input_schema(columns)
    frame = _enforce_schema(infer_and_parse_data(json.loads(json.dumps(payload)), schema), schema)
    assert isinstance(frame, pd.DataFrame)
    return [{name: value for name, value in row.items() if value == value} for row in frame.to_dict("records")]


@pytest.mark.parametrize("features", [[[1.5, 2.5]], [[1, 2]], [[1, 2.5], [0, 3]]], ids=str)
def test_features_of_integers_are_accepted_as_floats_are(features: list[list[float]]) -> None:
    assert parse({"dataframe_records": [{"features": features}]}) == [{"features": features}]
    split = {"columns": ["features"], "data": [[features]]}
    assert parse({"dataframe_split": split}) == [{"features": features}]


def test_rows_with_different_inputs_are_accepted_together() -> None:
    rows = [{"text": "a dog"}, {"features": [[1, 2]]}, {"image": "aGk="}]
    assert parse({"dataframe_records": rows}) == rows


def test_column_that_the_model_does_not_accept_is_dropped() -> None:
    rows = [{"text": "a dog", "features": [[1]]}]
    assert parse({"dataframe_records": rows}, columns=("text",)) == [{"text": "a dog"}]
