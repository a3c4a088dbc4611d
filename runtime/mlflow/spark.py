"""``bifocal.spark.embed_table``. Needs pyspark, Java 17 or newer, and MLflow on the workers."""

from collections.abc import Callable, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mlflow
import numpy as np
import pyarrow as pa
from mlflow.exceptions import MlflowException
from mlflow.pyfunc.spark_model_cache import SparkModelCache

if TYPE_CHECKING:  # an extra
    from pyspark.sql import DataFrame

EMBEDDING, ERROR = "embedding", "embedding_error"
WRONG_INPUT = "INVALID_PARAMETER_VALUE"
"""MLflow's error code for rows that a model does not accept."""
VECTOR = pa.list_(pa.field("element", pa.float32(), nullable=False))
"""Arrow type of an embedding. Spark copies numbers faster where none can be null."""
PIECE_ROWS = 1024
"""Rows of a batch of embeddings: they bound its memory, whatever number of rows Spark passes to the
worker."""


def embed_table(table: "DataFrame", model: str) -> "DataFrame":
    """Return a Spark table whose column ``embedding`` (array<float>, unit norm) replaces ``text``,
    ``image`` (bytes or base64) and ``features``, one value per row. A broken row, such as a
    truncated image, has no embedding, and the reason in ``embedding_error``. Rows pass as Arrow
    batches, because a pandas UDF converts every number; workers load ``model`` (fixed version)
    once, from a file, which Spark Connect does not support.
    """
    from pyspark.sql.types import (
        ArrayType,
        FloatType,
        StringType,
        StructField,
        StructType,
    )  # an extra

    with TemporaryDirectory() as folder:
        directory = mlflow.artifacts.download_artifacts(model, dst_path=folder)
        signature = mlflow.models.Model.load(directory).signature
        accepted, outputs = signature.inputs.input_names(), signature.outputs.input_names()
        if outputs != [EMBEDDING]:
            raise ValueError(
                f"{model} gives {', '.join(outputs)}, expected a model that gives {EMBEDDING}"
            )
        inputs = [name for name in table.columns if name in accepted]
        if not inputs or {EMBEDDING, ERROR} & set(table.columns):
            raise ValueError(
                f"the table has the columns {', '.join(table.columns)}; expected "
                f"{' or '.join(accepted)}, and no {EMBEDDING}"
            )
        archive = SparkModelCache.add_local_model(table.sparkSession, directory)
    kept = [name for name in table.columns if name not in inputs]
    fields = [
        *(table.schema[name] for name in kept),
        StructField(EMBEDDING, ArrayType(FloatType(), containsNull=False)),
        StructField(ERROR, StringType()),
    ]
    return table.mapInArrow(
        embedding_of(lambda: SparkModelCache.get_or_load(archive)[0], inputs, kept),
        StructType(fields),
    )


def embedding_of(
    load: Callable[[], Any], inputs: Sequence[str], kept: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that replaces the ``inputs`` of batches by embeddings and errors.

    Spark sends nested functions by value: they must not call a function of this module.
    """

    def vectors_of(opened: Any, piece: pa.RecordBatch) -> list[Any]:
        """Return the vector of each row, or why it has none; a piece is halved until its broken
        rows are alone."""
        try:
            return opened.predict(piece.select(inputs).to_pandas())[EMBEDDING].to_list()  # type: ignore[no-any-return]
        except (ValueError, MlflowException) as error:
            if getattr(error, "error_code", WRONG_INPUT) != WRONG_INPUT:
                raise
            if piece.num_rows == 1:
                return [str(error)]
            half = piece.num_rows // 2
            return vectors_of(opened, piece.slice(0, half)) + vectors_of(opened, piece.slice(half))

    def embed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        opened = load()
        for batch in batches:
            for start in range(0, batch.num_rows, PIECE_ROWS):
                piece = batch.slice(start, PIECE_ROWS)
                found = vectors_of(opened, piece)
                broken = np.array([isinstance(row, str) for row in found])
                vectors = [row for row in found if not isinstance(row, str)]
                values = np.concatenate(vectors) if vectors else np.zeros(0, np.float32)
                ends = np.cumsum([0 if isinstance(row, str) else len(row) for row in found])
                offsets = pa.array(np.append(0, ends).astype(np.int32))
                arrays = pa.ListArray.from_arrays(
                    offsets, pa.array(values), type=VECTOR, mask=pa.array(broken)
                )
                errors = pa.array(
                    [row if isinstance(row, str) else None for row in found], pa.string()
                )
                names = [*kept, EMBEDDING, ERROR]
                yield pa.RecordBatch.from_arrays(
                    [*piece.select(kept).columns, arrays, errors], names=names
                )

    return embed
