"""What does the collection of a new model cost, if the former one keeps the backbone's features?

    python -m benchmarks run speed.new_model --run RUN --photographs FOLDER [--images 2000]

RUN is a run of 'bifocal train', whose model embeds photographs of FOLDER. The new model has the
same backbone, and a head with other weights. It embeds the photographs anew, and reads their
features in the former collection; both collections have to be equal. Times are CPU times, of user
and system, so other processes hardly change them.
"""

import argparse
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.common import Report, cpu_seconds
from bifocal.search.collection.collection import Collection
from bifocal.search.collection.embedding import CollectionEmbedder
from bifocal.search.collection.sources import files_source

SHARE, DIFFERENCE = 0.03, 1e-5
MILLION, HOUR = 1_000_000, 3600


def write_other_head(model: Path, target: Path) -> Path:
    """Write a model with the same backbone, and noise of a tenth in the matrices of the head."""
    shutil.copytree(model, target)
    file, random = target / "image_encoder.onnx", np.random.default_rng(0)
    graph = onnx.load(file)
    for weight in graph.graph.initializer:
        values = numpy_helper.to_array(weight)
        if values.ndim > 1 and values.dtype == np.float32:
            noise = random.normal(0, 0.1 * values.std(), values.shape).astype(np.float32)
            weight.CopyFrom(numpy_helper.from_array(values + noise, weight.name))
    onnx.save(graph, file)
    return target


def embed(model: Path, photographs: Path, target: Path, previous: Path | None = None) -> None:
    """Write the collection of a folder."""
    former = None if previous is None else Collection.open(previous)
    source = files_source(photographs, target)
    CollectionEmbedder(model, "new", source, former, regions=False).write(target)


def main() -> None:
    """Report the time as a share of embedding anew, the greatest difference, and a million."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--photographs", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    report = Report("speed.new_model")
    with tempfile.TemporaryDirectory() as folder:
        root, photographs = Path(folder), Path(folder) / "photographs"
        photographs.mkdir()
        for file in sorted(options.photographs.glob("*.jpg"))[: options.images]:
            shutil.copy2(file, photographs)
        count, model = len(list(photographs.iterdir())), options.run / "artifacts" / "onnx"
        other = write_other_head(model, root / "other")
        former, anew, computed = (root / name for name in ("former", "anew", "computed"))
        embed(model, photographs, former)
        everything = cpu_seconds(partial(embed, other, photographs, anew))
        seconds = cpu_seconds(partial(embed, other, photographs, computed, former))
        expected, found = Collection.open(anew), Collection.open(computed)
        backbone = found.description.backbone
        assert backbone is not None
        report.add(
            f"{count:,} photographs: from stored features, relative to embedding anew",
            seconds / everything,
            at_most=SHARE,
            reference=f"{seconds:.2f} s; all: {everything:.0f} s; load {os.getloadavg()[0]:.0f}",
        )
        report.add(
            f"{count:,} photographs: greatest difference of a vector's number",
            float(np.abs(np.float64(expected.vectors[:]) - np.float64(found.vectors[:])).max()),
            at_most=DIFFERENCE,
        )
        for name, time in (("embedded anew", everything), ("from stored features", seconds)):
            report.add(
                f"a million photographs: {name}", time / count * MILLION / HOUR, "h of a core"
            )
        report.add(
            "a million photographs: stored features", 2 * backbone.size * MILLION / 1e9, "GB"
        )
    report.write()


if __name__ == "__main__":
    main()
