"""Loader that is copied into a registered model: MLflow's server would answer errors with stack
traces."""

import logging
from collections.abc import Mapping
from typing import Any

import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INTERNAL_ERROR, INVALID_PARAMETER_VALUE

from bifocal.onnx import pyfunc


class PyfuncErrors:
    """A model whose errors are MLflow's: status 400 for a wrong input, else 500."""

    def __init__(self, model: pyfunc.Predictor) -> None:
        self.model = model

    def predict(
        self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return one embedding or score for each row, see ``EmbeddingPredictor`` and
        ``PairPredictor``."""
        try:
            return self.model.predict(model_input, params)
        except ValueError as error:
            raise MlflowException(str(error), error_code=INVALID_PARAMETER_VALUE) from error
        except Exception as error:
            logging.getLogger(__name__).exception("the model failed")
            raise MlflowException(
                "the model failed: see the log of the server", error_code=INTERNAL_ERROR
            ) from error


def _load_pyfunc(data_path: str) -> PyfuncErrors:
    """Load a model; MLflow calls this function by its name, so the model is not a pickle."""
    return PyfuncErrors(pyfunc._load_pyfunc(data_path))
