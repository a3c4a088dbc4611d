"""What share of the bare ONNX session's throughput does Spark keep?

    python -m benchmarks run speed.batch [--run RUN] [--sentences 40000] [--images 3000] [--passes
    3]

Needs Java 17 and pyspark: ``pip install '.[spark]'``. ``--run`` is a folder of
``bifocal train`` or of ``make repro`` with a collection; the default is the folder of
``bifocal demo``. Its model is registered in an MLflow store of its own. A local Spark with one core
and one task at a time reads a Parquet table of captions, and one of image files, of the collection,
repeated, and embeds them by ``bifocal.spark.embed_table``.

Throughput per core is rows per second of CPU time of all processes of Spark, the JVM and its Python
worker, which other work on the machine hardly changes. Arrow passes 10,000 sentences at a time to
the worker, the default, and 256 images. Floors and a peer run in turn with it, the first two in the
batches of the model and with one thread:

- the bare session: the ONNX graphs on arrays that are ready;
- the session with its inputs: also tokens of the sentences; decoding and resizing of the image
  files, from memory;
- Spark without a model: a function that answers zeros, as many as the embeddings have, for each
  row;
- MLflow's UDF, ``mlflow.pyfunc.spark_udf``, with the same model.

The first passes warm up; the results are medians of the others. A task prepares its worker before
its first row: a pass over only the first batch is subtracted from each pass, and stands in a row of
its own, as the start of Spark does.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np

import bifocal
from benchmarks.common import Report
from benchmarks.spark_tables import (
    EMBED_TABLE,
    MLFLOW_UDF,
    NO_MODEL,
    Work,
    check_packages,
    open_spark,
    register,
    spark_works,
)
from bifocal.onnx.encoders import Embedder
from bifocal.onnx.limits import chunks
from bifocal.onnx.pixels import read_pixels
from bifocal.onnx.pyfunc import CHUNK_ROWS
from bifocal.onnx.sessions import run_graph
from bifocal.search.trained_model import ONNX, TrainedModel
from pipelines.app.demo import unpack

SHARE = 0.85
WARM_UP = 2
NOISE = 0.01
"""Part of the bare session's time below which the time of Spark without a model is not reported."""
SESSION, WITH_INPUTS = "bare session", "session with its inputs"
NOUNS = {"text": "sentences", "image": "images"}


def floors(embedder: Embedder, column: str, values: Sequence[Any]) -> dict[str, Work]:
    """Return the passes of each floor."""
    batches, rows = list(chunks(values, CHUNK_ROWS[column])), len(values) - CHUNK_ROWS[column]
    functions: dict[str, tuple[Callable[[Any], object], list[Any]]]
    if column == "text":
        ready = [embedder.sentences.read(batch) for batch in batches]
        functions = {
            SESSION: (lambda arrays: run_graph(embedder.texts, arrays), ready),
            WITH_INPUTS: (embedder.encode_sentences, batches),
        }
    else:
        pixels = [
            [read_pixels(image, **embedder.preprocessing) for image in batch] for batch in batches
        ]
        functions = {
            SESSION: (lambda batch: embedder.encode_inputs(embedder.read_resized(batch)), pixels),
            WITH_INPUTS: (embedder.encode_images, batches),
        }
    return {
        name: Work(
            partial(_each, function, inputs), partial(function, inputs[0]), time.process_time, rows
        )
        for name, (function, inputs) in functions.items()
    }


def _each(function: Callable[[Any], object], inputs: Sequence[Any]) -> None:
    for batch in inputs:
        function(batch)


def measure(works: Mapping[str, Work], passes: int) -> dict[str, tuple[float, float]]:
    """Return CPU seconds per row, without the start of a task, and for the first batch; the works
    take turns."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(WARM_UP + passes):
        for name, work in works.items():
            # Spark ends a worker that is idle for a minute: its start is not part of the passes
            work.first_batch()
            marks = [work.seconds()]
            for run in (work.first_batch, work.all_rows):
                run()
                marks.append(work.seconds())
            first, both = np.diff(marks)
            times[name].append(((both - first) / work.rows, first))
    return {
        name: tuple(np.median(values[WARM_UP:], axis=0).tolist()) for name, values in times.items()
    }


def report_column(
    report: Report, run: str, column: str, passes: Mapping[str, tuple[float, float]]
) -> None:
    """Report the shares of both floors, the throughput, and the time of a task before its first
    row."""
    noun, row = NOUNS[column], {name: seconds for name, (seconds, _) in passes.items()}
    spark, bare = row[EMBED_TABLE], row[SESSION]
    for name in (WITH_INPUTS, SESSION):
        report.add(
            f"{run}, {noun}: throughput per core relative to the {name}",
            row[name] / spark,
            at_least=SHARE,
            reference=f"{1 / row[name]:,.0f} / s; Spark {1 / spark:,.0f} / s",
        )
    if row[NO_MODEL] > NOISE * bare:
        report.add(
            f"{run}, {noun}: CPU time of a row in {NO_MODEL}",
            1e6 * row[NO_MODEL],
            "us",
            reference=f"bare session {1e6 * bare:,.0f} us; its share of both "
            f"{bare / (bare + row[NO_MODEL]):.2f}",
        )
    report.add(
        f"{run}, {noun}: throughput per core relative to {MLFLOW_UDF}",
        row[MLFLOW_UDF] / spark,
        reference=f"{1 / row[MLFLOW_UDF]:,.0f} / s",
    )
    start = passes[EMBED_TABLE][1] - spark * CHUNK_ROWS[column]
    report.add(f"{run}, {noun}: CPU time of a task before its first row", start, "s")


def repeat(values: Sequence[Any], count: int) -> list[Any]:
    """Return ``count`` values, repeated in their order."""
    return list(islice(cycle(values), count))


def columns_of(model: TrainedModel, sentences: int, images: int) -> dict[str, list[Any]]:
    """Return captions and image files of the collection, repeated."""
    collection = model.collection
    rows = range(len(collection))
    columns = {
        "text": repeat([text for row in rows for text in collection.captions(row)], sentences)
    }
    if "image" in model.embedder.inputs:
        files = [collection.image(row) for row in islice(rows, images)]
        columns["image"] = repeat(
            [file.read_bytes() for file in files if isinstance(file, Path)], images
        )
    return columns


def main() -> None:
    """Measure sentences and images, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, help="run folder; default: the folder of 'bifocal demo'"
    )
    parser.add_argument(
        "--sentences", type=int, default=40_000, help="rows of the table of sentences"
    )
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
        report.add(
            "start of Spark",
            time.perf_counter() - start,
            "s",
            reference=f"load {os.getloadavg()[0]:.1f}",
        )
        try:
            embedder = Embedder(model.directory / ONNX, threads=1)
            for column, values in columns_of(model, arguments.sentences, arguments.images).items():
                embed = embedder.embed_sentences if column == "text" else embedder.embed_images
                dim = embed(values[:1]).shape[1]
                works = spark_works(spark, address, column, values, dim, folder)
                times = measure(works | floors(embedder, column, values), arguments.passes)
                report_column(report, run, column, times)
        finally:
            spark.stop()
    report.write()


if __name__ == "__main__":
    main()
