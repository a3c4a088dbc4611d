"""How well does the pointing head of a backbone point, and does it know whether a phrase is in the image?

    python -m benchmarks run quality.presence [--data ../shared/data] [--cache FOLDER]

The head of ``bifocal train`` and ``bifocal where --weights`` with its defaults, without any training:
EfficientNet-Lite2 and all-MiniLM-L6-v2, exported, without torch. It points at the COCO categories of 80 photographs
(302 phrases with boxes) and gives each of the 80 categories a probability in each photograph. Temperature, sigma and
center were chosen on 40 photographs, drawn with seed 0; the calibration on 40 categories of COCO and half of the
phrases of Flickr8k. The other halves are reported beside them. Intervals are bootstraps over images.
docs/pointing.md analyzes the results.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.common import Report
from benchmarks.pointing_data import Photographs, read_photographs
from benchmarks.quality.pointing import CHOSEN, SEED, add_hits
from bifocal.metrics import pointing_hits
from bifocal.metrics.bootstrap import mean_interval
from bifocal.search.heatmap import SIDE, peak
from bifocal.serving.pointing import ACCURATE, PointingHead
from bifocal.serving.sessions import run_graph
from pipelines.app.training.pointing import pointer_of_weights

BACKBONE = "tf_efficientnet_lite2_imagenet.safetensors"
EDGES = (0.0, 0.2, 0.3, 0.4, 0.6, 0.8, 1.01)
REPETITIONS = 15
Array = NDArray[np.float64]


def locate(head: PointingHead, photographs: Photographs, names: list[str]) -> tuple[NDArray[np.bool_], Array]:
    """Return whether the head hits each phrase (P,), and the probability (N, categories) of each category."""
    rows = [names.index(name) for name in photographs.names]
    points, known = np.zeros((len(photographs.boxes), 2)), []
    for image, file in enumerate(photographs.files):
        places = head.locate(file.read_bytes(), names, SIDE)
        known.append([place.probability for place in places])
        for phrase in np.flatnonzero(photographs.images == image):
            points[phrase] = peak(places[rows[photographs.texts[phrase]]].heatmap)
    return pointing_hits(points, photographs.boxes), np.array(known)


def add_presence(report: Report, name: str, known: Array, present: NDArray[np.bool_], bar: float | None = None) -> None:
    """Report the area under the ROC curve over all categories and photographs."""
    area = float(roc_auc_score(present.ravel(), known.ravel()))
    rng, draws = np.random.default_rng(SEED), []
    for _ in range(500):
        rows = rng.integers(0, len(known), len(known))
        draws.append(roc_auc_score(present[rows].ravel(), known[rows].ravel()))
    low, high = np.quantile(draws, (0.025, 0.975))
    report.add(f"{name}, presence, ROC area", area, at_least=bar, reference=f"95 %: {low:.3f} to {high:.3f}")


def add_reliability(report: Report, known: Array, present: NDArray[np.bool_], threshold: float) -> None:
    """Report how often a category is present by its probability, if half of the questions were about present ones."""
    held_out = np.random.default_rng(SEED).permutation(known.shape[1]) >= known.shape[1] // 2
    values, present = known[:, held_out].ravel(), present[:, held_out].ravel()
    weights = np.where(present, 0.5 / present.mean(), 0.5 / (1 - present.mean()))
    images = np.repeat(np.arange(len(known)), held_out.sum())
    rng = np.random.default_rng(SEED)
    for low, high in pairwise(EDGES):
        rows = (values >= low) & (values < high)
        share = np.average(present[rows], weights=weights[rows])
        draws = []
        for _ in range(500):
            counts = np.bincount(rng.integers(0, len(known), len(known)), minlength=len(known))[images[rows]]
            total = counts * weights[rows]
            draws.append(float((total * present[rows]).sum() / max(total.sum(), 1e-9)))
        bounds = np.quantile(draws, (0.025, 0.975))
        mean = float(np.average(values[rows], weights=weights[rows]))
        report.add(
            f"present, probability {low:.1f} to {min(high, 1):.1f} (mean {mean:.2f})", 100 * float(share), "%",
            reference=f"95 %: {100 * bounds[0]:.0f} to {100 * bounds[1]:.0f}; {int(rows.sum())} pairs",
        )  # fmt: skip
    for name, chosen, kept in (("present phrases shown", present, True), ("absent phrases refused", ~present, False)):
        right = 100 * ((values >= threshold) == kept)[chosen].astype(float)
        ids = [str(image) for image in images[chosen]]
        lowest, highest = mean_interval(right, ids, resamples=500, seed=SEED)
        report.add(name, float(right.mean()), "%", reference=f"95 %: {lowest:.1f} to {highest:.1f}")


def add_times(report: Report, name: str, head: PointingHead, files: Sequence[Path]) -> None:
    """Report median wall times: the image encoder alone, the first phrase of an image, a further phrase."""
    rng = np.random.default_rng(SEED)
    alone: list[float] = []
    first: list[float] = []
    second: list[float] = []
    pixels = [rng.integers(0, 256, (1, 3, size, size), dtype=np.uint8) for size in head.sizes]
    for number in range(REPETITIONS):
        content = files[number].read_bytes()
        alone.append(milliseconds(lambda: [run_graph(head.graph, (image,)) for image in pixels]))
        first.append(milliseconds(partial(head.locate, content, ["a red bus"], SIDE)))
        second.append(milliseconds(partial(head.locate, content, ["traffic light"], SIDE)))
    ratio = float(np.median(first) / np.median(alone))
    report.add(f"{name}, image encoder", float(np.median(alone)), "ms")
    report.add(f"{name}, first phrase over image encoder", ratio, at_most=1.5)
    report.add(f"{name}, further phrase", float(np.median(second)), "ms", at_most=5)


def milliseconds(call: Callable[[], object]) -> float:
    """Return the wall time of a call."""
    start = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - start)


def presence(photographs: Photographs, names: list[str]) -> NDArray[np.bool_]:
    """Return whether each photograph has a box of each category (N, categories)."""
    present = np.zeros((len(photographs.files), len(names)), dtype=bool)
    rows = np.array([names.index(name) for name in photographs.names])
    present[photographs.images, rows[photographs.texts]] = True
    return present


def main() -> None:
    """Export, point, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("runs/pointing"), help="folder of the features")
    options = parser.parse_args()
    photographs = read_photographs(options.data, options.cache, CHOSEN, SEED)
    instances = json.loads((options.data / "coco_mini/annotations/instances_train2017.json").read_text())
    names = sorted(category["name"] for category in instances["categories"])
    present = presence(photographs, names)
    head = pointer_of_weights(options.data / "weights")
    words = pointer_of_weights(options.data / "weights" / BACKBONE)
    report = Report("quality.presence")
    report.add("phrases", len(photographs.boxes))
    add_times(report, "640 pixels", head, photographs.files)
    hits, known = locate(head, photographs, names)
    add_hits(report, "640 pixels, the default", hits, photographs, 47.0)
    add_presence(report, "640 pixels, the default", known, present, 0.86)
    add_reliability(report, known, present, head.threshold)
    for name, sizes, bar in (("448 pixels", (448,), None), ("448 + 640 + 896 pixels", ACCURATE, 50.0)):
        head.sizes = sizes
        add_times(report, name, head, photographs.files)
        hits, known = locate(head, photographs, names)
        add_hits(report, name, hits, photographs, bar)
        add_presence(report, name, known, present)
    hits, known = locate(words, photographs, names)
    add_hits(report, "640 pixels, words in place of a sentence encoder", hits, photographs)
    add_presence(report, "640 pixels, words in place of a sentence encoder", known, present)
    report.write()


if __name__ == "__main__":
    main()
