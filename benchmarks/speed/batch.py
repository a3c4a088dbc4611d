"""What share of the bare ONNX session's throughput per core does the registered model keep in Spark?

    python -m benchmarks run speed.batch [--run RUN] [--sentences 40000] [--images 3000] [--passes 3]

Needs Java 17 and pyspark: ``pip install 'bifocal[spark]'``. ``--run`` is a folder of ``bifocal train`` or of
``make repro`` with a collection; the default is the folder of ``bifocal demo``. Its model is registered in an MLflow
store of its own. A local Spark with one core and one task at a time reads a Parquet table of captions, and one of image
files, of the collection, repeated, and embeds them as docs/mlflow.md shows.

Throughput per core is rows per second of CPU time of all processes of Spark, the JVM and its Python worker, which other
work on the machine hardly changes. Arrow passes 10,000 sentences at a time to the worker, the default, and 256 images.
Two floors run in turn with Spark, in the batches of the model and with one thread:

- the bare session: the ONNX graphs on arrays that are ready;
- the session with its inputs: also tokens of the sentences; decoding and resizing of the image files, from memory.

The first passes warm up; the results are medians of the others. A task loads the model before its first row: a pass
over the first batch alone is subtracted from each pass, and stands in a row of its own, as the start of Spark does.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import bifocal
from benchmarks.common import Report
from bifocal.serving.embedder import Embedder
from bifocal.serving.encoders import read_pixels
from bifocal.serving.limits import chunks
from bifocal.serving.pyfunc import CHUNK_ROWS
from bifocal.serving.sessions import run_graph
from bifocal.trained import ONNX, TrainedModel
from pipelines.app.demo_folder import unpack
from runtime import artifacts
from runtime.mlflow.exported import register_exported

SHARE = 0.85
MODEL = "batch"
WARM_UP = 2
SPARK, SESSION, WITH_INPUTS = "Spark", "bare session", "session with its inputs"
NOUNS = {"text": "sentences", "image": "images"}
ARROW_ROWS = {"text": 10_000, "image": 256}


@dataclass(frozen=True)
class Work:
    """Passes over the rows of a table, and over its first batch alone.

    Attributes:
        seconds: returns the CPU time so far of the processes that work.
    """

    all_rows: Callable[[], object]
    first_batch: Callable[[], object]
    seconds: Callable[[], float]


def check_packages() -> None:
    """Exit with an error if pyspark or Java is missing; the error has the command that installs it."""
    if find_spec("pyspark") is None:
        sys.exit("error: speed.batch needs pyspark: pip install 'bifocal[spark]'")
    if shutil.which("java") is None:
        sys.exit("error: speed.batch needs Java 17 or newer: apt-get install openjdk-17-jre-headless")


def register(onnx: Path, folder: Path) -> str:
    """Register a copy of the graphs in an MLflow store below ``folder``; return the address of the model."""
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
    mlflow.set_experiment(experiment_id=mlflow.create_experiment(MODEL, (folder / "files").as_uri()))
    with mlflow.start_run():
        register_exported(
            MODEL, "champion", graphs=folder / "onnx", evaluation=folder / "metrics", tags={}, description=""
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


def spark_work(spark: Any, model: str, column: str, values: Sequence[Any], folder: Path) -> Work:
    """Return passes that embed a table by the registered model; Spark drops the embeddings."""
    import mlflow
    from pyspark.sql.functions import struct

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ARROW_ROWS[column]))
    embed = mlflow.pyfunc.spark_udf(spark, model, result_type="embedding array<float>", env_manager="local")

    def write(name: str, rows: Sequence[Any]) -> Callable[[], object]:
        file = folder / f"{column}-{name}.parquet"
        pq.write_table(pa.table({column: rows}), file, compression="none")
        frame = spark.read.parquet(str(file)).select(embed(struct(column)).embedding.alias("embedding"))
        return lambda: frame.write.format("noop").mode("overwrite").save()

    return Work(write("all", values), write("first", values[: CHUNK_ROWS[column]]), spark_seconds)


def spark_seconds() -> float:
    """Return the CPU time of the processes of Spark: all that this process has started."""
    return sum(sum(process.cpu_times()[:4]) for process in psutil.Process().children(recursive=True))


def floors(embedder: Embedder, column: str, values: Sequence[Any]) -> dict[str, Work]:
    """Return the passes of each floor."""
    batches = list(chunks(values, CHUNK_ROWS[column]))
    functions: dict[str, tuple[Callable[[Any], object], list[Any]]]
    if column == "text":
        ready = [embedder.sentences.read(batch) for batch in batches]
        functions = {
            SESSION: (lambda arrays: run_graph(embedder.texts, arrays), ready),
            WITH_INPUTS: (embedder.encode_sentences, batches),
        }
    else:
        pixels = [[read_pixels(image, **embedder.preprocessing) for image in batch] for batch in batches]
        functions = {
            SESSION: (lambda batch: embedder.encode_inputs(embedder.read_resized(batch)), pixels),
            WITH_INPUTS: (embedder.encode_images, batches),
        }
    return {
        name: Work(partial(_each, function, inputs), partial(function, inputs[0]), time.process_time)
        for name, (function, inputs) in functions.items()
    }


def _each(function: Callable[[Any], object], inputs: Sequence[Any]) -> None:
    for batch in inputs:
        function(batch)


def measure(works: Mapping[str, Work], passes: int) -> dict[str, tuple[float, float]]:
    """Return CPU seconds of all rows without the first batch, and of the first batch; the works take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(WARM_UP + passes):
        for name, work in works.items():
            work.first_batch()  # Spark ends a worker that is idle for a minute: its start is no part of the passes
            marks = [work.seconds()]
            for run in (work.first_batch, work.all_rows):
                run()
                marks.append(work.seconds())
            first, both = np.diff(marks)
            times[name].append((both - first, first))
    return {name: tuple(np.median(values[WARM_UP:], axis=0).tolist()) for name, values in times.items()}


def report_column(report: Report, run: str, column: str, count: int, passes: Mapping[str, tuple[float, float]]) -> None:
    """Report the shares of both floors, the throughput, and the time of a task before its first row."""
    noun, (spark, first) = NOUNS[column], passes[SPARK]
    rows = count - CHUNK_ROWS[column]
    for name in (WITH_INPUTS, SESSION):
        seconds, _ = passes[name]
        report.add(
            f"{run}, {noun}: throughput per core relative to the {name}", seconds / spark,
            at_least=SHARE, reference=f"{rows / seconds:,.0f} / s; Spark {rows / spark:,.0f} / s",
        )  # fmt: skip
    start = first - spark / rows * CHUNK_ROWS[column]
    report.add(f"{run}, {noun}: CPU time of a task before its first row", start, "s", reference="load of the model")


def repeat(values: Sequence[Any], count: int) -> list[Any]:
    """Return ``count`` values, repeated in their order."""
    return list(islice(cycle(values), count))


def columns_of(model: TrainedModel, sentences: int, images: int) -> dict[str, list[Any]]:
    """Return captions and image files of the collection, repeated."""
    collection = model.collection
    rows = range(len(collection))
    columns = {"text": repeat([text for row in rows for text in collection.captions(row)], sentences)}
    if "image" in model.embedder.inputs:
        files = [collection.image(row) for row in islice(rows, images)]
        columns["image"] = repeat([file.read_bytes() for file in files if isinstance(file, Path)], images)
    return columns


def main() -> None:
    """Measure sentences and images, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run folder; default: the folder of 'bifocal demo'")
    parser.add_argument("--sentences", type=int, default=40_000, help="rows of the table of sentences")
    parser.add_argument("--images", type=int, default=3000, help="rows of the table of images")
    parser.add_argument("--passes", type=int, default=3, help="measured passes over each table")
    arguments = parser.parse_args()
    check_packages()
    report = Report("speed.batch")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = bifocal.load(arguments.run) if arguments.run else unpack(folder / "demo")
        run = arguments.run.name if arguments.run else "demo"
        address = register(model.directory / ONNX, folder)
        start = time.perf_counter()
        spark = open_spark()
        report.add("start of Spark", time.perf_counter() - start, "s", reference=f"load {os.getloadavg()[0]:.1f}")
        try:
            embedder = Embedder(model.directory / ONNX, threads=1)
            for column, values in columns_of(model, arguments.sentences, arguments.images).items():
                works = {SPARK: spark_work(spark, address, column, values, folder)}
                times = measure(works | floors(embedder, column, values), arguments.passes)
                report_column(report, run, column, len(values), times)
        finally:
            spark.stop()
    report.write()


if __name__ == "__main__":
    main()
