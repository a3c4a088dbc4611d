"""How well does a model of photographs point?

    python -m benchmarks run quality.pointing [--data ../shared/data] [--cache FOLDER] [--trained]

Linear models of the cells of an ImageNet EfficientNet-Lite2 learn on the first 2,400 training
images of Flickr8k with InfoNCE, and point at the COCO categories of 80 photographs (302 phrases
with boxes). Every value is chosen on 40 images, drawn with seed 0; the other 40 are reported beside
them. Intervals are bootstraps over the images. The file heatmaps.png in FOLDER shows 24 phrases of
the result, drawn at random. With --trained, models of "bifocal train" on 1,000 photographs point
instead, by the localizers of their encoders. Results are analyzed in docs/pointing.md.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.common import Report
from benchmarks.pointing_data import (
    CAPTIONS,
    SENTENCES,
    Hits,
    Photographs,
    read_captioned,
    read_photographs,
    vectorize,
)
from benchmarks.trained_localizers import LOCALIZERS, trained_pointer
from bifocal.evaluation.localization.heatmaps import dense_heatmap
from bifocal.image_encoders import LinearEncoder
from bifocal.localization import BEANHeatmap, PerRegionLocalizer, SmoothedActivations, peak_points
from bifocal.localization.base import Localizer, RegionScores, RegionVectors
from bifocal.metrics import pointing_hits
from bifocal.metrics.bootstrap import mean_interval
from bifocal.onnx.heatmaps import SIDE, peak
from bifocal.onnx.images import open_image
from bifocal.onnx.pointing import Pointer as ServedPointer
from bifocal.report.pictures import contact_sheet, with_heatmap
from bifocal.text.vectorizers import TFIDF, SentenceVectors
from bifocal.text.vectorizers.base import FittedVectorizer
from bifocal.text_encoders import LinearEncoder as LinearTextEncoder

IMAGES, CHOSEN, SEED = 2400, 40, 0
DIM, BATCH, TEMPERATURE = 384, 400, 0.07
STEPS, RATE = (40, 120), 5e-4
SMOOTHED = "smoothed, with a prior of the center"
"""The localizer that chooses the number of steps."""
SIGMAS, CENTERS = (0.04, 0.07, 0.1), (0.5, 1.0)
AREAS = (0.0, 0.02, 0.1, 0.3, 1.01)
SHOWN = 24
REPORTED = (", chosen on", ", others", "")


class Pointer:
    """A linear model, its vectorizer of texts, and the phrases that it points at."""

    def __init__(self, vectorizer: FittedVectorizer, means: Tensor, photographs: Photographs):
        torch.manual_seed(SEED)
        dim = vectorizer.vectorizer.format.dim
        self.image, self.text = LinearEncoder(means.shape[1], DIM), LinearTextEncoder(dim, DIM)
        self.photographs = photographs
        self.phrases = vectorizer.vectorize(photographs.names).values.float()
        self.encoded: dict[type[Localizer], RegionVectors] = {}

    @torch.no_grad()
    def locate(self, localizer: Localizer) -> RegionScores:
        """Return the scores of the cells of each phrase's image."""
        kind = type(localizer)
        if kind not in self.encoded:
            self.encoded[kind] = localizer.encode(self.image, self.photographs.regions())
        texts = self.text(self.phrases, torch.ones(len(self.phrases)))[
            torch.from_numpy(self.photographs.texts)
        ]
        return localizer.score(
            self.encoded[kind].of(torch.from_numpy(self.photographs.images)), texts
        )

    def choose(self, candidates: Sequence[Localizer]) -> tuple[Localizer, Hits]:
        """Return the localizer with the most hits on the choice images, the first of equals, and
        all its hits."""
        hits = [self.photographs.hits(self.locate(candidate)) for candidate in candidates]
        best = int(np.argmax([found[self.photographs.chosen_on].sum() for found in hits]))
        return candidates[best], hits[best]


def train(pointer: Pointer, means: Tensor, texts: Tensor, steps: int) -> Pointer:
    """Train with InfoNCE on mean cells (n, D) and captions (n * CAPTIONS, K)."""
    torch.manual_seed(SEED)
    optimizer = torch.optim.Adam([*pointer.image.parameters(), *pointer.text.parameters()], lr=RATE)
    order = torch.cat([torch.randperm(len(means)) for _ in range(1 + steps * BATCH // len(means))])
    for rows in order.split(BATCH)[:steps]:
        captions = texts[rows * CAPTIONS + torch.randint(0, CAPTIONS, rows.shape)]
        images = pointer.image(means[rows].unsqueeze(1), torch.ones(len(rows), 1, dtype=torch.bool))
        scores = images @ pointer.text(captions, torch.ones(len(rows))).T / TEMPERATURE
        target = torch.arange(len(rows))
        loss = cross_entropy(scores, target) + cross_entropy(scores.T, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return pointer


def localizers() -> dict[str, list[Localizer]]:
    """Return the compared localizers, each with the values to choose from."""
    return {
        "cosine of a cell": [PerRegionLocalizer()],
        "BEAN's heatmap": [BEANHeatmap(round(share * DIM)) for share in (0.075, 0.2, 0.5)],
        "activations": [SmoothedActivations(0.0, 0.0)],
        "smoothed activations": [SmoothedActivations(sigma, 0.0) for sigma in SIGMAS],
        SMOOTHED: [SmoothedActivations(*pair) for pair in product(SIGMAS, CENTERS)],
    }


def add_hits(
    report: Report, name: str, hits: Hits, photographs: Photographs, bar: float | None = None
) -> None:
    """Report the accuracy of both halves and of all phrases with 95 % intervals, and print it by
    area."""
    chosen = photographs.chosen_on
    for group, rows in zip(REPORTED, (chosen, ~chosen, np.ones_like(chosen)), strict=True):
        ids = [str(row) for row in photographs.images[rows]]
        low, high = mean_interval(
            100 * hits[rows].astype(np.float64), ids, resamples=2000, seed=SEED
        )
        share, limit = 100 * float(hits[rows].mean()), None if group == REPORTED[0] else bar
        report.add(
            name + group, share, "%", at_least=limit, reference=f"95 %: {low:.1f} to {high:.1f}"
        )
    difference, low, high = halves_difference(hits, photographs)
    report.add(
        f"{name}, chosen on minus others",
        difference,
        "%",
        reference=f"95 %: {low:.1f} to {high:.1f}",
    )
    areas = photographs.areas
    for low, high in pairwise(AREAS):
        rows = (areas >= low) & (areas < high)
        print(
            f"{f'{name}, area {low:.0%} to {min(high, 1):.0%}':<58} "
            f"{100 * float(hits[rows].mean()):10.1f} %"
        )


def halves_difference(hits: Hits, photographs: Photographs) -> tuple[float, float, float]:
    """Return how many percent more phrases are hit in the images chosen on than in the others, with
    a 95 % interval."""
    counts, right = (np.bincount(photographs.images, weights) for weights in (None, hits))
    rng, values, draws = np.random.default_rng(SEED), [], []
    for half in (photographs.chosen_on, ~photographs.chosen_on):
        images = np.unique(photographs.images[half])
        drawn = rng.choice(images, (2000, len(images)))
        values.append(100 * float(hits[half].mean()))
        draws.append(100 * right[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    low, high = np.quantile(draws[0] - draws[1], (0.025, 0.975))
    return values[0] - values[1], float(low), float(high)


def served_hits(pointer: ServedPointer, photographs: Photographs) -> Hits:
    """Return whether an exported model hits each phrase."""
    points = np.zeros((len(photographs.boxes), 2))
    for image in np.unique(photographs.images):  # one photograph has no phrase
        rows, file = (
            np.flatnonzero(photographs.images == image),
            photographs.files[image].read_bytes(),
        )
        places = pointer.locate(
            file, [photographs.names[photographs.texts[row]] for row in rows], SIDE
        )
        points[rows] = [peak(place.heatmap) for place in places]
    return pointing_hits(points, photographs.boxes)


def heatmap_page(scores: RegionScores, hits: Hits, photographs: Photographs) -> Image.Image:
    """Return heatmaps of ``SHOWN`` phrases of different images, drawn at random from the images not
    chosen on."""
    order = np.random.default_rng(SEED).permutation(np.flatnonzero(~photographs.chosen_on))
    _, first = np.unique(photographs.images[order], return_index=True)
    points, cells = peak_points(scores).numpy(), []
    for row in order[np.sort(first)][:SHOWN]:
        image = open_image(photographs.files[photographs.images[row]])
        image.thumbnail((360, 360))
        heatmap = dense_heatmap(scores.scores[row], scores.boxes[row])
        picture = with_heatmap(image, heatmap, 100 * photographs.boxes[row], 100 * points[row])
        cells.append(
            (
                picture,
                f"{photographs.names[photographs.texts[row]]} ({'hit' if hits[row] else 'miss'})",
            )
        )
    return contact_sheet("Phrases, drawn at random", cells)


def main() -> None:
    """Train, choose, point, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path("runs/pointing"),
        help="folder of the features and the heatmaps",
    )
    parser.add_argument("--trained", action="store_true", help="only models of bifocal train")
    options = parser.parse_args()
    photographs = read_photographs(options.data, options.cache, CHOSEN, SEED)
    report = Report("quality.pointing")
    if options.trained:
        for name in LOCALIZERS:
            pointer = trained_pointer(name, options.data, options.cache)
            add_hits(
                report, f"bifocal train, {name}", served_hits(pointer, photographs), photographs
            )
            report.write()
        return
    captioned = read_captioned(options.data, options.cache, IMAGES)
    words = vectorize(TFIDF(form="stem", stop_words=False, min_count=2), captioned.sentences)
    sentence_file = options.cache / f"sentences-{IMAGES}.npy"
    sentences = vectorize(
        SentenceVectors(path=options.data / SENTENCES), captioned.sentences, sentence_file
    )

    report.add("phrases", len(photographs.boxes))
    report.add(
        "median share of the image in the boxes of a phrase",
        100 * float(np.median(photographs.areas)),
        "%",
    )
    center = pointing_hits(np.full((len(photographs.boxes), 2), 0.5), photographs.boxes)
    add_hits(report, "center of the image", center, photographs)
    for name, (vectorizer, texts) in (("bags of words", words), ("sentence vectors", sentences)):
        start = partial(Pointer, vectorizer, captioned.means, photographs)
        trained = [train(start(), captioned.means, texts, count) for count in STEPS]
        found = [pointer.choose(localizers()[SMOOTHED]) for pointer in trained]
        best = int(np.argmax([hits[photographs.chosen_on].sum() for _, hits in found]))
        report.add(f"{name}, steps", STEPS[best])
        for kind, parts in localizers().items():
            localizer, hits = trained[best].choose(parts)
            add_hits(report, f"{name}, {kind}", hits, photographs)
            print(f"    {vars(localizer)}")
    localizer, hits = found[best]
    scores = trained[best].locate(localizer)
    heatmap_page(scores, hits, photographs).save(options.cache / "heatmaps.png")
    report.write()


if __name__ == "__main__":
    main()
