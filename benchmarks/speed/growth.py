"""Which part of the pipeline grows faster than its number of images?

    OMP_NUM_THREADS=1 python -m benchmarks run speed.growth [--images 250] [--repeats 3]

CPU time of each stage, of an index of a folder and of its use, at one, two and four times so many
images. The time at four times is divided by the line through the other two: 1 is linear, above 1
grows faster. The line through all three gives the time of a million images. Drawn scenes; the
training has the same epochs at each size, and its backbone one.
"""

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, cpu_seconds
from benchmarks.scene_systems import values_of
from benchmarks.speed.collection import draw, embed, update
from bifocal.search import Search
from bifocal.search.index.index import SearchIndex
from components import catalog
from runtime import parameters
from runtime.stage import Job, run_stage

STAGES = (
    "prepare_dataset",
    "extract_features",
    "vectorize_captions",
    "pretrain_sorter",
    "train_embedding",
    "evaluate",
    "export_onnx",
    "embed_collection",
    "build_index",
)
TIMES, FOLDER_IMAGES = (1, 2, 4), 10
"""Sizes, and how many times so many images the folder has: embedding is fast."""
QUERIES, WARM_UP, MILLION, FASTER = 50, 50, 1_000_000, 1.1


def stage_seconds(images: int, seed: int, folder: Path) -> dict[str, float]:
    """Return the CPU time of each stage for ``images`` of train and a fifth of them in val and
    test."""
    splits = {"train": images, "val": images // 5, "test": images // 5}
    settings = [f"prepare_dataset.corpus.{name}={count}" for name, count in splits.items()]
    values = values_of(
        "scenes/smile_infonce", [*settings, "extract_features.weights.epochs=1", f"seed={seed}"]
    )
    found = catalog.configurable_components()
    sections, seconds = parameters.validate(values, [*found.values()]), {}
    for name in STAGES:
        component = found[name]
        inputs, outputs = (
            {one: folder / one for one in names} for names in (component.inputs, component.outputs)
        )
        seconds[name] = cpu_seconds(
            partial(run_stage, Job(component, sections[name], inputs, outputs, values))
        )
    return seconds


def folder_seconds(images: int, folder: Path) -> dict[str, float]:
    """Return the CPU time of an index of a folder, of its refresh with one percent, of a query and
    of a deletion."""
    new = images // 100
    files = draw(folder, images + new)[images:]
    (folder / "new").mkdir()
    held = [(file, file.rename(folder / "new" / file.name)) for file in files]
    seconds = {
        "index of a folder": cpu_seconds(partial(embed, folder / "photos", folder / "collection"))
    }
    for file, moved in held:
        moved.rename(file)
    refresh: Callable[[], Any] = partial(
        update, folder / "photos", folder / "collection", folder / "updated"
    )
    seconds["refresh of a folder, 1 % new"] = cpu_seconds(refresh)
    index = SearchIndex.open(folder / "updated" / "index")
    search, vectors = (
        Search(index),
        np.random.default_rng(0).normal(size=(QUERIES, index.description.dimension)),
    )
    seconds["a query"] = (
        cpu_seconds(lambda: [search.batch(vector[None]) for vector in vectors]) / QUERIES
    )
    ids = index.items["item_id"][:QUERIES].to_pylist()

    def delete() -> None:
        for one in ids:
            index.remove([one])

    seconds["a deletion"] = cpu_seconds(delete) / QUERIES
    return seconds


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=250)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    report = Report("speed.growth")
    with tempfile.TemporaryDirectory() as folder:  # the first call of a stage imports and compiles
        stage_seconds(WARM_UP, 0, Path(folder))
    times: dict[str, list[list[float]]] = defaultdict(list)  # by work, of each repeat at each size
    for seed in range(options.repeats):
        for number, factor in enumerate(TIMES):
            with tempfile.TemporaryDirectory() as stages, tempfile.TemporaryDirectory() as photos:
                found = stage_seconds(factor * options.images, seed, Path(stages))
                found |= folder_seconds(factor * options.images * FOLDER_IMAGES, Path(photos))
            for work, seconds in found.items():
                times[work] += [[]] if number == 0 else []
                times[work][-1].append(seconds)
    faster = list[str]()
    for work, repeats in times.items():
        measured = np.array(repeats)
        first, second, last = measured.T
        relative = last / (second + 2 * (second - first))
        unit = options.images * (1 if work in STAGES else FOLDER_IMAGES)
        sizes = np.tile(unit * np.array(TIMES), len(measured))
        slope, constant = np.polyfit(sizes, measured.ravel(), 1)
        report.add(
            f"relative to a line: {work}",
            float(np.median(relative)),
            reference=f"{relative.min():.2f} to {relative.max():.2f}; {last.mean():.4g} s for "
            f"{4 * unit:,}",
        )
        faster += [work] if relative.min() > FASTER else []
        if not work.startswith("a ") and work != "pretrain_sorter":  # of no images
            report.add(
                f"a million images: {work}", (constant + slope * MILLION) / 3600, "h of a core"
            )
    label = f"parts above {FASTER} of a line in every repeat"
    report.add(label, len(faster), at_most=0, reference=", ".join(faster) or "none")
    report.write()


if __name__ == "__main__":
    main()
