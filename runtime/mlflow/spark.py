"""``bifocal.spark.embed_table``. Needs pyspark, Java 17 or newer, and MLflow on the workers."""

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import mlflow
import numpy as np
import pyarrow as pa
from mlflow.pyfunc.spark_model_cache import SparkModelCache

if TYPE_CHECKING:  # an extra
    from pyspark.sql import DataFrame

EMBEDDING = "embedding"
VECTOR = pa.list_(pa.field("element", pa.float32(), nullable=False))
"""Arrow type of an embedding. Spark copies numbers faster where none can be null."""
PIECE_ROWS = 1024
"""Rows of a batch of embeddings: they bound its memory, whatever number of rows Spark passes to the worker."""


def embed_table(table: "DataFrame", model: str) -> "DataFrame":
    """Return a Spark table whose column ``embedding`` (array<float>, unit norm) replaces ``text``, ``image`` (bytes or
    base64) and ``features``, one value per row. Rows pass as Arrow batches, because a pandas UDF converts every number;
    workers load ``model`` (fixed version) once, from a file, which Spark Connect does not support.
    """
    from pyspark.sql.types import ArrayType, FloatType, StructField, StructType  # an extra

    with TemporaryDirectory() as folder:
        directory = mlflow.artifacts.download_artifacts(model, dst_path=folder)
        signature = mlflow.models.Model.load(directory).signature
        accepted, outputs = signature.inputs.input_names(), signature.outputs.input_names()
        if outputs != [EMBEDDING]:
            raise ValueError(f"{model} gives {', '.join(outputs)}, expected a model that gives {EMBEDDING}")
        inputs = [name for name in table.columns if name in accepted]
        if not inputs or EMBEDDING in table.columns:
            raise ValueError(
                f"the table has the columns {', '.join(table.columns)}; expected {' or '.join(accepted)}, "
                f"and no {EMBEDDING}"
            )
        archive = SparkModelCache.add_local_model(table.sparkSession, directory)
    kept = [name for name in table.columns if name not in inputs]

    def embed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Spark sends a nested function by value: it must not call a function of this module.
        opened, _ = SparkModelCache.get_or_load(archive)
        for batch in batches:
            for start in range(0, batch.num_rows, PIECE_ROWS):
                piece = batch.slice(start, PIECE_ROWS)
                vectors = np.stack(opened.predict(piece.select(inputs).to_pandas())[EMBEDDING].to_list())
                offsets = pa.array(np.arange(0, vectors.size + 1, vectors.shape[1], dtype=np.int32))
                arrays = pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel()), type=VECTOR)
                yield pa.RecordBatch.from_arrays([*piece.select(kept).columns, arrays], names=[*kept, EMBEDDING])

    fields = [
        *(table.schema[name] for name in kept),
        StructField(EMBEDDING, ArrayType(FloatType(), containsNull=False)),
    ]
    return table.mapInArrow(embed, StructType(fields))
