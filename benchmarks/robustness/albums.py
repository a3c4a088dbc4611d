"""Does the monitor report albums only if they changed?

    python -m benchmarks run robustness.albums

The demo's model embeds drawn scenes once. Images of an album share a part of their vectors: their
mean cosine is 0.52, after the mean of all images is taken away. The reference has 1,000 images and
a week 500, in albums of one size. A change is found if one of two weeks crosses a threshold. The
peer tests single images.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

from benchmarks.common import Report
from bifocal.datasets.scenes.drawing import draw_scene
from bifocal.datasets.scenes.scenes import Scenes
from bifocal.monitoring.drift import Thresholds, compare
from bifocal.monitoring.observations import Observations, embed
from bifocal.search.trained_model import TrainedModel
from pipelines.app.demo import unpack
from pipelines.policies import load_thresholds

Array = NDArray[Any]
SIZES = (1, 5, 10, 50)
COSINE = 0.52
SCENES, SEED = 900, 4004
REFERENCE_IMAGES, IMAGES = 1000, 500
REFERENCES, WEEKS, PAIRS, PEERS = 50, 4, 10, 20
QUERIES = 800
SHORT, LONG = slice(5, 7), slice(0, 5)
"""Sentences of a scene: search terms, and whole sentences."""


def _camera(image: Image.Image) -> Image.Image:
    """Return a soft image with a warm white balance."""
    red, green, blue = image.filter(ImageFilter.GaussianBlur(1)).split()
    return Image.merge(
        "RGB", (red, green.point(lambda v: v * 0.92), blue.point(lambda v: v * 0.75))
    )


CHANGES: Mapping[str, Callable[[Image.Image], Image.Image]] = {
    "plain": lambda image: image,
    "another camera": _camera,
    "another season: half of the color": lambda image: Image.blend(
        image, ImageOps.grayscale(image).convert("RGB"), 0.5
    ),
    "line drawings": lambda image: (
        ImageOps.grayscale(image).filter(ImageFilter.CONTOUR).convert("RGB")
    ),
}


def draw(model: TrainedModel) -> dict[str, Array]:
    """Return the vectors of the scenes, (n, d), by the name of the change."""
    corpus = Scenes(seed=SEED)
    images = [draw_scene(corpus.scene("train", number)[0], 128) for number in range(SCENES)]
    return {
        name: np.concatenate([model.encode_image([change(image)]) for image in images])
        for name, change in CHANGES.items()
    }


def write(model: TrainedModel, sentences: slice) -> Array:
    """Return the vectors of sentences of the scenes, (n, d)."""
    corpus = Scenes(seed=SEED, short=5)
    scenes = (corpus.scene("train", number)[1] for number in range(SCENES))
    return embed(
        model.embedder, [sentence.text for texts in scenes for sentence in texts[sentences]]
    )


@dataclass(frozen=True)
class Week:
    """Albums of a week: their number by the part of the pool that they come from."""

    pool: Mapping[str, Array]
    random: np.random.Generator
    size: int

    def observed(self, images: int, change: str = "plain", share: float = 0.0) -> Observations:
        """Return observations of albums, a share of them with a change."""
        albums = images // self.size
        changed = round(share * albums)
        vectors = np.concatenate(
            [self._albums("plain", albums - changed), self._albums(change, changed)]
        )
        labels = np.repeat(np.arange(albums), self.size)
        return Observations(
            vectors, np.zeros((0, 2)), None, None, np.stack([labels, labels], axis=1)
        )

    def _albums(self, name: str, count: int) -> Array:
        """Return vectors that have the mean and, about, the covariance of the pool."""
        pool = self.pool[name]
        mean = pool.mean(axis=0)
        shared = (
            np.repeat(pool[self.random.integers(len(pool), size=count)], self.size, axis=0) - mean
        )
        own = pool[self.random.integers(len(pool), size=count * self.size)] - mean
        vectors: Array = mean + np.sqrt(COSINE) * shared + np.sqrt(1 - COSINE) * own
        return vectors.astype(np.float32)


def asked(
    random: np.random.Generator, short: Array, long: Array, share: float = 0.0
) -> Observations:
    """Return observations of queries, a share of them whole sentences."""
    changed = round(share * QUERIES)
    rows, others = (
        random.permutation(len(short))[: QUERIES - changed],
        random.permutation(len(long))[:changed],
    )
    queries = np.concatenate([short[rows], long[others]])
    return Observations(np.zeros((0, queries.shape[1])), queries, None, None)


def main() -> None:
    """Measure false alarms by the size of albums, and how many changes are found within two
    weeks."""
    thresholds, random = Thresholds.of(load_thresholds().model_dump()), np.random.default_rng(SEED)
    with TemporaryDirectory() as folder:
        model = unpack(Path(folder) / "demo")
        pool, short, long = draw(model), write(model, SHORT), write(model, LONG)
    plain = pool["plain"]
    near = np.argsort(-plain @ plain[0])[: SCENES // 5]
    pool["another subject: a fifth of the scenes"] = plain[near]
    report = Report("robustness.albums")

    def reported(reference: Observations, week: Observations) -> bool:
        return any(
            finding.crossed
            for finding in compare(reference, week, thresholds, int(random.integers(2**31)))
        )

    for size in SIZES:
        weeks = Week(pool, random, size)
        alarms = singles = 0
        for trial in range(REFERENCES):
            reference = weeks.observed(REFERENCE_IMAGES)
            for number in range(WEEKS):
                week = weeks.observed(IMAGES)
                alarms += reported(reference, week)
                if number or trial >= PEERS:
                    continue
                singles += reported(replace(reference, groups=None), replace(week, groups=None))
        total = REFERENCES * WEEKS
        name, peer = (
            f"weeks without a change, albums of {size}: reported",
            f"{100 * singles / PEERS:.3g} % of {PEERS} as singles",
        )
        report.add(
            name, 100 * alarms / total, "%", at_most=5.0, reference=f"of {total} weeks; {peer}"
        )
        report.write()
    for size in SIZES:
        weeks = Week(pool, random, size)
        for change in list(pool)[1:]:
            found = 0
            for _ in range(PAIRS):
                reference = weeks.observed(REFERENCE_IMAGES)
                found += any(
                    reported(reference, weeks.observed(IMAGES, change, 0.5)) for _ in range(2)
                )
            name = f"half of the albums of {size} are {change}: found within two weeks"
            report.add(name, 100 * found / PAIRS, "%")
            report.write()
    for share in (0.2, 0.5):
        found = 0
        for _ in range(PAIRS):
            terms = random.permutation(short)
            reference, others = (
                asked(random, terms[: len(terms) // 2], long),
                terms[len(terms) // 2 :],
            )
            found += any(reported(reference, asked(random, others, long, share)) for _ in range(2))
        name = f"{100 * share:g} % of {QUERIES} queries are whole sentences: found within two weeks"
        report.add(name, 100 * found / PAIRS, "%")
    report.write()


if __name__ == "__main__":
    main()
