"""Why does a model of photographs point hardly better than the center of the image?

    python -m benchmarks run quality.pointing [--data ../shared/data] [--cache FOLDER] [--images 2400]

A linear model of the mean cell (InfoNCE, stemmed bags of words) learns on the first training images of Flickr8k, over
frozen cells of an ImageNet EfficientNet-Lite2. It points at the COCO categories of 80 photographs (302 phrases with
boxes). A phrase without any word of the training captions has a zero vector. The first half is every other image, the
second half the rest; localizers are chosen on the first. Results are analyzed in docs/pointing.md.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from benchmarks.common import Report
from bifocal.backbones.weights import FromFile
from bifocal.datasets import open_image
from bifocal.datasets.base import ImageEntry, PhraseEntry
from bifocal.datasets.corpora import COCOInstances, Flickr8k
from bifocal.features.extractors import Hypercolumns
from bifocal.metrics import pointing_hits
from bifocal.text.vectorizers import TFIDF
from bifocal.text.vectorizers.base import FittedVectorizer

WEIGHTS = "weights/tf_efficientnet_lite2_imagenet.safetensors"
TRAINING_SIZE, SIZES = 260, (260, 448)
DIM, EPOCHS, BATCH, CAPTIONS, TEMPERATURE, RATE = 256, 12, 400, 5, 0.07, 0.002
AREAS = (0.0, 0.02, 0.1, 0.3, 1.01)
PRIOR = 1.0
"""Weight of the squared distance from the center, in standard deviations of a heatmap at the edges."""
REPORTED = ("", ", first half", ", second half")
"""Groups of phrases that are kept with the results; the others are printed."""
Hits = NDArray[np.bool_]


@dataclass(frozen=True)
class Phrases:
    """Phrases of the photographs.

    Attributes:
        images: row of each phrase's image.
        names: row of each phrase in the list of categories.
        boxes: (n, 4) of each phrase, relative to the sides of the image.
    """

    images: NDArray[np.int64]
    names: NDArray[np.int64]
    boxes: list[NDArray[np.floating]]

    def hits(self, scores: Tensor) -> Hits:
        """Return whether the best cell's center is in a box; scores (images, cells, names)."""
        best = scores[torch.from_numpy(self.images), :, torch.from_numpy(self.names)].argmax(dim=1).numpy()
        side = round(scores.shape[1] ** 0.5)
        return pointing_hits((np.stack([best % side, best // side], axis=1) + 0.5) / side, self.boxes)

    def reachable(self, side: int) -> Hits:
        """Return whether any cell of a side x side map has its center in a box of the phrase."""
        centers = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=2).reshape(-1, 2) / side + 0.5 / side
        return np.array([pointing_hits(centers, [boxes] * len(centers)).any() for boxes in self.boxes])


def cells(size: int, files: list[Path], data: Path, file: Path, pool: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``pool`` of the cells (images, R, D) of each image, from ``file`` if it exists."""
    if not file.is_file():
        layers = ("blocks.5", "bn2")
        half = (0.5, 0.5, 0.5)
        extractor = Hypercolumns("tf_efficientnet_lite2", layers, power=0.5, size=size, mean=half, std=half)
        FromFile(data / WEIGHTS).load(extractor.backbone)
        parts = []
        with torch.inference_mode():
            for start in range(0, len(files), 8):
                pixels = torch.stack([extractor.preprocess(open_image(path)) for path in files[start : start + 8]])
                parts.append(pool(extractor.cells(pixels)[0]).half())
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, torch.cat(parts).numpy())
    return torch.from_numpy(np.load(file)).float()


def train(means: Tensor, texts: Tensor) -> tuple[torch.nn.Linear, torch.nn.Linear]:
    """Return linear maps of mean cells (n, D) and of captions (n * CAPTIONS, K) with InfoNCE."""
    torch.manual_seed(0)
    image, text = torch.nn.Linear(means.shape[1], DIM), torch.nn.Linear(texts.shape[1], DIM, bias=False)
    optimizer = torch.optim.Adam([*image.parameters(), *text.parameters()], lr=RATE)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [6, 8, 10], 0.5)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(means)).split(BATCH):
            captions = rows * CAPTIONS + torch.randint(0, CAPTIONS, rows.shape)
            scores = normalize(image(means[rows]), dim=1) @ normalize(text(texts[captions]), dim=1).T / TEMPERATURE
            target = torch.arange(len(rows))
            loss = cross_entropy(scores, target) + cross_entropy(scores.T, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    return image, text


def heatmaps(scores: Tensor) -> dict[str, Tensor]:
    """Return the compared heatmaps (images, cells, names) from the cosines of cells and names."""
    side = round(scores.shape[1] ** 0.5)
    axis = torch.linspace(-1, 1, side)
    distance = (axis[:, None] ** 2 + axis**2).reshape(1, -1, 1)
    contrast = scores - scores.mean(dim=2, keepdim=True)
    standard = (contrast - contrast.mean(dim=1, keepdim=True)) / contrast.std(dim=1, keepdim=True).clamp_min(1e-6)
    return {
        "cosine of a cell": scores,
        "less the mean of all names": contrast,
        "and a prior of the center": standard - PRIOR * distance,
    }


def main() -> None:
    """Train, point, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path("runs/pointing"), help="folder of the features")
    parser.add_argument("--images", type=int, default=2400, help="training images")
    options = parser.parse_args()
    corpus = Flickr8k(root=options.data / "flickr8k").read(options.cache)
    listed = (options.data / "flickr8k/Flickr_8k.trainImages.txt").read_text().split()[: options.images]
    by_id = {Path(str(image.path)).name: image for image in corpus.images}
    train_images = [by_id[name] for name in listed]
    captions: dict[str, list[str]] = {}
    for entry in corpus.captions:
        captions.setdefault(entry.image_id, []).append(entry.text)
    sentences = [text for image in train_images for text in captions[image.image_id][:CAPTIONS]]
    vectorizer = TFIDF(form="stem", stop_words=False, min_count=2)
    vectorizer.fit(sentences, seed=0)
    vectors = FittedVectorizer(vectorizer)
    files = [corpus.image_root / image.path for image in train_images if image.path is not None]
    cache = options.cache / f"flickr8k-{len(files)}.npy"
    means = cells(TRAINING_SIZE, files, options.data, cache, lambda maps: maps.mean(dim=1))
    image, text = train(means, vectors.vectorize(sentences).values.float())

    coco = COCOInstances(options.data / "coco_mini", val=0.0).read(options.cache)
    names = sorted({entry.phrase for entry in coco.phrases})
    photographs = sorted(coco.images, key=lambda entry: str(entry.path))
    phrases = read_phrases(photographs, coco.phrases, names)
    values = vectors.vectorize(names).values.float()
    known = (values.abs().sum(dim=1) > 0).numpy()[phrases.names]
    report = Report("quality.pointing")
    areas = np.array([np.prod(boxes[:, 2:] - boxes[:, :2], axis=1).sum() for boxes in phrases.boxes])
    report.add("phrases", len(areas))
    report.add("median share of the image in the boxes of a phrase", 100 * float(np.median(areas)), "%")
    report.add("phrases without a word of the training captions", 100 * float((~known).mean()), "%")
    center = pointing_hits(np.full((len(areas), 2), 0.5), phrases.boxes)
    add_hits(report, "center of the image", center, phrases, known, areas)
    for size in SIZES:
        paths = [coco.image_root / entry.path for entry in photographs if entry.path is not None]
        regions = cells(size, paths, options.data, options.cache / f"coco-{size}.npy", lambda maps: maps)
        side = round(regions.shape[1] ** 0.5)
        report.add(f"best possible with {side} x {side} cells", 100 * float(phrases.reachable(side).mean()), "%")
        with torch.no_grad():
            embedded = normalize(image(regions), dim=2)
            scores = torch.einsum("nrd,pd->nrp", embedded, normalize(text(values), dim=1))
        for name, maps in heatmaps(scores).items():
            add_hits(report, f"{size} pixels, {name}", phrases.hits(maps), phrases, known, areas)
    report.write()


def read_phrases(images: Sequence[ImageEntry], entries: Sequence[PhraseEntry], names: list[str]) -> Phrases:
    """Return the phrases with boxes relative to their images."""
    rows = {entry.image_id: row for row, entry in enumerate(images)}
    sides = [np.tile(entry.size or (1, 1), 2) for entry in images]  # COCO states the size of every image
    boxes = [np.asarray(entry.boxes, dtype=float) / sides[rows[entry.image_id]] for entry in entries]
    return Phrases(
        np.array([rows[entry.image_id] for entry in entries]),
        np.array([names.index(entry.phrase) for entry in entries]),
        boxes,
    )


def add_hits(report: Report, name: str, hits: Hits, phrases: Phrases, known: Hits, areas: NDArray[np.floating]) -> None:
    """Report the accuracy of all phrases, of both halves of the images, of known words, and by area."""
    groups = {"": np.ones_like(hits), ", first half": phrases.images % 2 == 0, ", second half": phrases.images % 2 == 1}
    groups |= {", known words": known, ", unknown words": ~known}
    for low, high in pairwise(AREAS):
        groups[f", area {low:.0%} to {min(high, 1):.0%}"] = (areas >= low) & (areas < high)
    for group, chosen in groups.items():
        share = 100 * float(hits[chosen].mean())
        if group in REPORTED:
            report.add(name + group, share, "%")
        else:
            print(f"{name + group:<58} {share:10.1f} %")


if __name__ == "__main__":
    main()
