"""Embeddings of Spark tables by a registered model, with the extras ``spark`` and ``train``."""

from importlib import import_module
from typing import TYPE_CHECKING

from bifocal.__main__ import add_packages

if TYPE_CHECKING:  # an extra
    from pyspark.sql import DataFrame


def embed_table(table: "DataFrame", model: str) -> "DataFrame":
    """Return ``table`` with the column ``embedding`` in place of ``text`` or ``image``.

    ``model`` is an address in MLflow's registry, such as "models:/bifocal@champion".
    """
    add_packages()
    # By name: the library imports no higher layer.
    embedded: DataFrame = import_module("runtime.mlflow.spark").embed_table(table, model)
    return embedded
