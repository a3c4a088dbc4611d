"""A registered model in a local Spark with one core, and passes over a table of its inputs."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bifocal.onnx.pyfunc import CHUNK_ROWS
from bifocal.spark import embed_table
from runtime import artifacts
from runtime.mlflow.exported import register_exported
from runtime.mlflow.spark import EMBEDDING, PIECE_ROWS, VECTOR

MODEL = "batch"
EMBED_TABLE, MLFLOW_UDF, NO_MODEL = "Spark", "MLflow's UDF", "Spark without a model"
ARROW_ROWS = {"text": 10_000, "image": 256}
FLOOR_REPEATS = 10
"""How often the table without a model has each row: its CPU time would be too short to measure."""


@dataclass(frozen=True)
class Work:
    """Passes over the rows of a table, and over only its first batch.

    Attributes:
        seconds: returns the CPU time so far of the processes that work.
        rows: of the table without its first batch.
    """

    all_rows: Callable[[], object]
    first_batch: Callable[[], object]
    seconds: Callable[[], float]
    rows: int


def check_packages() -> None:
    """Exit with an error if pyspark or Java is missing; the error has the command that installs
    it."""
    if find_spec("pyspark") is None:
        sys.exit("error: speed.batch needs pyspark: pip install '.[spark]'")
    if shutil.which("java") is None:
        sys.exit(
            "error: speed.batch needs Java 17 or newer: apt-get install openjdk-17-jre-headless"
        )


def register(onnx: Path, folder: Path) -> str:
    """Register a copy of the graphs in an MLflow store below ``folder``; return the address of the
    model."""
    import mlflow

    contents: dict[str, dict[str, Any]] = {"onnx": {"inputs": {}}}
    contents["metrics"] = {"inputs": {"dataset": 64 * "0"}, "metrics": {}}  # nothing was evaluated
    for name, manifest in contents.items():
        partial = artifacts.open_partial(folder / name, {})
        if name == "onnx":
            manifests = shutil.ignore_patterns(artifacts.MANIFEST, artifacts.FINGERPRINT)
            shutil.copytree(onnx, partial, dirs_exist_ok=True, ignore=manifests)
        artifacts.commit(partial, folder / name, manifest)
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder}/mlflow.db"
    mlflow.set_experiment(
        experiment_id=mlflow.create_experiment(MODEL, (folder / "files").as_uri())
    )
    with mlflow.start_run():
        register_exported(
            MODEL,
            "champion",
            graphs=folder / "onnx",
            evaluation=folder / "metrics",
            tags={},
            description="",
        )
    return f"models:/{MODEL}@champion"


def open_spark() -> Any:
    """Return a local Spark with one core, whose workers run this Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.files.maxPartitionBytes": "4g",  # one task for each table
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def spark_works(
    spark: Any, model: str, column: str, values: Sequence[Any], dim: int, folder: Path
) -> dict[str, Work]:
    """Return passes that read and embed a table; Spark drops the embeddings.

    They embed by ``embed_table``; by ``mlflow.pyfunc.spark_udf``; and by a function that answers
    zeros, without a model.

    Args:
        column: "text" or "image".
        values: sentences, or bytes of image files.
        dim: d of the embeddings.
        folder: for the Parquet files.
    """
    import mlflow
    from pyspark.sql.functions import struct

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS[column]))

    def write(name: str, rows: Sequence[Any]) -> Any:
        file = folder / f"{column}-{name}.parquet"
        pq.write_table(
            pa.table({column: rows}), file, compression="none", row_group_size=ARROW_ROWS[column]
        )
        return spark.read.parquet(str(file))

    first_batch, all_rows = write("first", values[: CHUNK_ROWS[column]]), write("all", values)
    repeated = write("repeated", [value for _ in range(FLOOR_REPEATS) for value in values])
    udf = mlflow.pyfunc.spark_udf(
        spark, model, result_type="embedding array<float>", env_manager="local"
    )
    functions: dict[str, Callable[[Any], Any]] = {
        EMBED_TABLE: lambda table: embed_table(table, model),
        MLFLOW_UDF: lambda table: table.select(udf(struct(column)).embedding.alias(EMBEDDING)),
        NO_MODEL: lambda table: _answer_zeros(table, dim),
    }
    works = {}
    for name, function in functions.items():
        table, repeats = (repeated, FLOOR_REPEATS) if name == NO_MODEL else (all_rows, 1)
        rows = repeats * len(values) - CHUNK_ROWS[column]
        works[name] = Work(
            _pass(function(table)), _pass(function(first_batch)), _spark_seconds, rows
        )
    return works


def _answer_zeros(table: Any, dim: int) -> Any:
    """Return the table of embeddings that are zero."""
    from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

    def answer(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import numpy as np

        for batch in batches:
            for start in range(0, batch.num_rows, PIECE_ROWS):
                vectors = np.zeros((min(PIECE_ROWS, batch.num_rows - start), dim), dtype=np.float32)
                offsets = pa.array(np.arange(0, vectors.size + 1, dim, dtype=np.int32))
                arrays = pa.ListArray.from_arrays(offsets, pa.array(vectors.ravel()), type=VECTOR)
                yield pa.RecordBatch.from_arrays([arrays], names=[EMBEDDING])

    fields = [StructField(EMBEDDING, ArrayType(FloatType(), containsNull=False))]
    return table.mapInArrow(answer, StructType(fields))


def _pass(frame: Any) -> Callable[[], object]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def _spark_seconds() -> float:
    """Return the CPU time of the processes of Spark: all that this process has started."""
    return sum(
        sum(process.cpu_times()[:4]) for process in psutil.Process().children(recursive=True)
    )
