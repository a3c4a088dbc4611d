"""How well does the pointing head point, and find phrases absent?

    python -m benchmarks run quality.presence [--data ../shared/data] [--cache FOLDER] [--kinds]
    [--default] [--run FOLDER]

The head of ``bifocal train`` and ``bifocal where --weights`` with its defaults, without any
training: EfficientNet-Lite2 and all-MiniLM-L6-v2, exported, without torch. It points at the COCO
categories of 80 photographs (302 phrases with boxes) and gives each of the 80 categories a
probability in each photograph. Temperature, sigma and center were chosen on 40 photographs, drawn
with seed 0; the calibration on 40 categories of COCO and half of the phrases of Flickr8k. The other
halves are reported beside them. The kinds of phrases of presence.yaml are asked in 300 photographs
of the split dev of Flickr8k. Intervals are bootstraps over images. docs/pointing.md analyzes the
results.
"""

import argparse
import json
import re
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.common import Report, cpu_seconds
from benchmarks.pointing_data import Photographs, read_photographs
from benchmarks.quality.pointing import CHOSEN, SEED, add_hits
from bifocal.backbones.networks import named_networks
from bifocal.export.class_sentences import small_encoders
from bifocal.metrics import pointing_hits
from bifocal.metrics.bootstrap import mean_interval
from bifocal.onnx.heatmaps import SIDE, peak
from bifocal.onnx.pointing import ACCURATE, FOLDER, PointingHead
from bifocal.onnx.sessions import run_graph
from bifocal.search.trained_model import load

BACKBONE = "tf_efficientnet_lite2_imagenet.safetensors"
EDGES = (0.0, 0.2, 0.3, 0.4, 0.6, 0.8, 1.01)
REPETITIONS = 15
KINDS = Path(__file__).with_suffix(".yaml")
DEV_IMAGES = 300
"""Photographs of Flickr8k in which phrases of each kind are asked."""
Array = NDArray[np.float64]


def locate(
    head: PointingHead, photographs: Photographs, names: list[str]
) -> tuple[NDArray[np.bool_], Array]:
    """Return whether the head hits each phrase (P,), and the probability (N, categories) of each
    category."""
    rows, weights = [names.index(name) for name in photographs.names], head.weights(names)
    points, known = np.zeros((len(photographs.boxes), 2)), []
    for image, file in enumerate(photographs.files):
        values = head.read(file.read_bytes())
        places = [head.place(values, of_phrase, SIDE) for of_phrase in weights]
        known.append([place.probability for place in places])
        for phrase in np.flatnonzero(photographs.images == image):
            points[phrase] = peak(places[rows[photographs.texts[phrase]]].heatmap)
    return pointing_hits(points, photographs.boxes), np.array(known)


def add_presence(
    report: Report,
    name: str,
    known: Array,
    present: NDArray[np.bool_],
    bar: float | None = None,
    asked: NDArray[np.bool_] | None = None,
) -> None:
    """Report the area under the ROC curve over the asked pairs (N, phrases), by default all of
    them."""
    counted = np.ones_like(present) if asked is None else asked
    area = float(roc_auc_score(present[counted], known[counted]))
    rng, draws = np.random.default_rng(SEED), []
    for _ in range(500):
        rows = rng.integers(0, len(known), len(known))
        draws.append(roc_auc_score(present[rows][counted[rows]], known[rows][counted[rows]]))
    low, high = np.quantile(draws, (0.025, 0.975))
    report.add(
        f"{name}, presence, ROC area",
        area,
        at_least=bar,
        reference=f"95 %: {low:.3f} to {high:.3f}",
    )


def add_reliability(
    report: Report, known: Array, present: NDArray[np.bool_], threshold: float
) -> None:
    """Report how often a category is present by its probability, if half of the questions were
    about present ones."""
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
            counts = np.bincount(rng.integers(0, len(known), len(known)), minlength=len(known))[
                images[rows]
            ]
            total = counts * weights[rows]
            draws.append(float((total * present[rows]).sum() / max(total.sum(), 1e-9)))
        bounds = np.quantile(draws, (0.025, 0.975))
        mean = float(np.average(values[rows], weights=weights[rows]))
        report.add(
            f"present, probability {low:.1f} to {min(high, 1):.1f}",
            100 * float(share),
            "%",
            reference=f"95 %: {100 * bounds[0]:.0f} to {100 * bounds[1]:.0f}; "
            f"{int(rows.sum())} pairs; mean {mean:.2f}",
        )
    add_threshold(report, "", values >= threshold, present, images)


def add_threshold(
    report: Report,
    name: str,
    shown: NDArray[np.bool_],
    present: NDArray[np.bool_],
    images: NDArray[np.int64],
) -> None:
    """Report the shares of present pairs that get a point, and of absent pairs that get none."""
    for kind, chosen, kept in (
        ("present phrases shown", present, True),
        ("absent phrases refused", ~present, False),
    ):
        right = 100 * (shown == kept)[chosen].astype(float)
        ids = [str(image) for image in images[chosen]]
        low, high = mean_interval(right, ids, resamples=500, seed=SEED)
        pairs = f"95 %: {low:.1f} to {high:.1f}; {len(ids)} pairs"
        report.add(f"{name}{kind}", float(right.mean()), "%", reference=pairs)


def add_kinds(report: Report, head: PointingHead, data: Path, title: str = "captions") -> None:
    """Report presence by kind of phrase. The captions of Flickr8k say which phrases are in a
    photograph."""
    captions: dict[str, list[str]] = {}
    for line in (data / "Flickr8k.token.txt").read_text(encoding="utf-8").splitlines():
        name, _, text = line.partition("\t")
        captions.setdefault(name.partition("#")[0], []).append(text.lower())
    files = (data / "Flickr_8k.devImages.txt").read_text().split()[:DEV_IMAGES]
    kinds = yaml.safe_load(KINDS.read_text(encoding="utf-8"))
    phrases = [phrase for patterns in kinds.values() for phrase in patterns]
    places = [head.locate((data / "images" / file).read_bytes(), phrases, 1) for file in files]
    every = np.array([[place.probability for place in of_file] for of_file in places])
    for kind, patterns in kinds.items():
        counts = np.array(
            [
                [
                    sum(bool(re.search(rf"\b({pattern})\b", text)) for text in captions[file])
                    for pattern in patterns.values()
                ]
                for file in files
            ]
        )
        known = every[:, [phrases.index(phrase) for phrase in patterns]]
        present, asked = counts >= 2, counts != 1
        add_presence(report, f"{title}, {kind}", known, present, asked=asked)
        images = np.repeat(np.arange(len(files)), asked.sum(axis=1))
        add_threshold(
            report,
            f"{title}, {kind}, ",
            known[asked] >= head.values.threshold,
            present[asked],
            images,
        )
        if kind == "person" and title == "captions":
            for name, rows in (
                ("with people", present[:, 0]),
                ("without people", counts[:, 0] == 0),
            ):
                low, middle, high = np.quantile(known[rows, 0], (0.05, 0.5, 0.95))
                reference = f"90 %: {low:.2f} to {high:.2f}; {int(rows.sum())} images"
                report.add(f"probability of 'a person', {name}", float(middle), reference=reference)


def add_times(report: Report, name: str, head: PointingHead, files: Sequence[Path]) -> None:
    """Report median CPU times: the image encoder alone, the first phrase of an image, a further
    phrase."""
    rng = np.random.default_rng(SEED)
    alone: list[float] = []
    first: list[float] = []
    second: list[float] = []
    pixels = [rng.integers(0, 256, (1, 3, size, size), dtype=np.uint8) for size in head.sizes]
    for number in range(REPETITIONS):
        content = files[number].read_bytes()
        alone.append(
            1000 * cpu_seconds(lambda: [run_graph(head.graph, (image,)) for image in pixels])
        )
        first.append(1000 * cpu_seconds(partial(head.locate, content, ["a red bus"], SIDE)))
        second.append(1000 * cpu_seconds(partial(head.locate, content, ["traffic light"], SIDE)))
    ratio = float(np.median(first) / np.median(alone))
    report.add(f"{name}, image encoder", float(np.median(alone)), "ms")
    report.add(f"{name}, first phrase over image encoder", ratio, at_most=1.5)
    report.add(f"{name}, further phrase", float(np.median(second)), "ms", at_most=5)


def presence(photographs: Photographs, names: list[str]) -> NDArray[np.bool_]:
    """Return whether each photograph has a box of each category (N, categories)."""
    present = np.zeros((len(photographs.files), len(names)), dtype=bool)
    rows = np.array([names.index(name) for name in photographs.names])
    present[photographs.images, rows[photographs.texts]] = True
    return present


def pointing_head(weights: Path) -> PointingHead:
    """Return the pointing head of a file or a folder of weights."""
    networks = named_networks(weights)
    assert networks is not None  # the path is given
    return PointingHead(small_encoders(networks) / FOLDER)


def main() -> None:
    """Export, point, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--cache", type=Path, default=Path("runs/pointing"), help="folder of the features"
    )
    parser.add_argument(
        "--kinds", action="store_true", help="ask only the phrases of presence.yaml"
    )
    parser.add_argument("--run", type=Path, help="ask only these phrases, of the model of a run")
    parser.add_argument("--default", action="store_true", help="point only by the default")
    options = parser.parse_args()
    report = Report("quality.presence")
    if options.run is not None:
        pointer = load(options.run).pointer
        assert isinstance(pointer, PointingHead)
        add_kinds(report, pointer, options.data / "flickr8k", "captions, trained")
        report.write()
        return
    head = pointing_head(options.data / "weights")
    if not options.default:
        add_kinds(report, head, options.data / "flickr8k")
    if options.kinds:
        report.write()
        return
    photographs = read_photographs(options.data, options.cache, CHOSEN, SEED)
    instances = json.loads(
        (options.data / "coco_mini/annotations/instances_train2017.json").read_text()
    )
    names = sorted(category["name"] for category in instances["categories"])
    present = presence(photographs, names)
    hits, known = locate(head, photographs, names)
    add_hits(report, "640 pixels, the default", hits, photographs, 47.0)
    if options.default:
        report.write()
        return
    words = pointing_head(options.data / "weights" / BACKBONE)
    report.add("phrases", len(photographs.boxes))
    add_times(report, "640 pixels", head, photographs.files)
    add_presence(report, "640 pixels, the default", known, present, 0.86)
    add_reliability(report, known, present, head.values.threshold)
    for name, sizes, bar in (
        ("448 pixels", (448,), None),
        ("448 + 640 + 896 pixels", ACCURATE, 50.0),
    ):
        head.sizes = sizes
        add_times(report, name, head, photographs.files)
        hits, known = locate(head, photographs, names)
        add_hits(report, name, hits, photographs, bar)
        add_presence(report, name, known, present)
    head.sizes = (640,)
    hits, known = locate(words, photographs, names)
    add_hits(report, "640 pixels, words in place of a sentence encoder", hits, photographs)
    add_presence(report, "640 pixels, words in place of a sentence encoder", known, present)
    report.write()


if __name__ == "__main__":
    main()
