"""How often does the monitor report a week without a change if images arrive in albums, and does it find real changes?

    python -m benchmarks run robustness.albums

The demo's model embeds drawn scenes once. Images of an album share a part of their vectors: their mean cosine is 0.52,
after the mean of all images is taken away. The reference has 1,500 images and a week 500, in albums of one size; an
album is rejected as a whole with probability 0.005. A change is found if one of two weeks crosses a threshold. The peer
is the test of single images, which the monitor had before.
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
from bifocal.monitoring.observations import Observations
from bifocal.monitoring.significance import Count
from bifocal.monitoring.units import design_effect
from bifocal.search.trained_model import TrainedModel
from pipelines.app.demo_folder import unpack
from pipelines.policies import load_thresholds

Array = NDArray[Any]
SIZES = (1, 5, 10, 50)
COSINE, REJECTED = 0.52, 0.005
SCENES, SEED = 900, 4004
REFERENCE_IMAGES, IMAGES = 1500, 500
REFERENCES, WEEKS, PAIRS = 50, 4, 10


def _camera(image: Image.Image) -> Image.Image:
    """Return a soft image with a warm white balance."""
    red, green, blue = image.filter(ImageFilter.GaussianBlur(1)).split()
    return Image.merge("RGB", (red, green.point(lambda v: v * 0.92), blue.point(lambda v: v * 0.75)))


CHANGES: Mapping[str, Callable[[Image.Image], Image.Image]] = {
    "plain": lambda image: image,
    "another camera": _camera,
    "another season: half of the color": lambda image: Image.blend(
        image, ImageOps.grayscale(image).convert("RGB"), 0.5
    ),
    "line drawings": lambda image: ImageOps.grayscale(image).filter(ImageFilter.CONTOUR).convert("RGB"),
}


def draw(model: TrainedModel) -> dict[str, Array]:
    """Return the vectors of the scenes, (n, d), by the name of the change."""
    corpus = Scenes(seed=SEED)
    images = [draw_scene(corpus.scene("train", number)[0], 128) for number in range(SCENES)]
    return {
        name: np.concatenate([model.encode_image([change(image)]) for image in images])
        for name, change in CHANGES.items()
    }


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
        vectors = np.concatenate([self._albums("plain", albums - changed), self._albums(change, changed)])
        labels = np.repeat(np.arange(albums), self.size)
        rejected = self.size * (self.random.random(albums) < REJECTED)
        totals = np.full(albums, self.size)
        unusable = Count(int(rejected.sum()), images, design_effect(rejected, totals))
        groups = np.stack([np.arange(len(vectors)), labels, labels], axis=1)
        return Observations(vectors, np.zeros((0, 2)), unusable, None, {}, None, None, groups)

    def _albums(self, name: str, count: int) -> Array:
        """Return vectors that have the mean and, about, the covariance of the pool."""
        pool = self.pool[name]
        mean = pool.mean(axis=0)
        shared = np.repeat(pool[self.random.integers(len(pool), size=count)], self.size, axis=0) - mean
        own = pool[self.random.integers(len(pool), size=count * self.size)] - mean
        vectors: Array = mean + np.sqrt(COSINE) * shared + np.sqrt(1 - COSINE) * own
        return vectors.astype(np.float32)


def main() -> None:
    """Measure false alarms by the size of albums, and how many changes are found within two weeks."""
    thresholds, random = Thresholds.of(load_thresholds().model_dump()), np.random.default_rng(SEED)
    with TemporaryDirectory() as folder:
        pool = draw(unpack(Path(folder) / "demo"))
    plain = pool["plain"]
    near = np.argsort(-plain @ plain[0])[: SCENES // 5]
    pool["another subject: a fifth of the scenes"] = plain[near]
    report = Report("robustness.albums")

    def reported(reference: Observations, week: Observations) -> bool:
        return any(finding.crossed for finding in compare(reference, week, thresholds, int(random.integers(2**31))))

    for size in SIZES:
        weeks = Week(pool, random, size)
        alarms = singles = 0
        for _ in range(REFERENCES):
            reference = weeks.observed(REFERENCE_IMAGES)
            for number in range(WEEKS):
                week = weeks.observed(IMAGES)
                alarms += reported(reference, week)
                if number:
                    continue  # the peer needs a week per reference
                without = [
                    replace(seen, groups=None, unusable=replace(seen.unusable, design=1.0))
                    for seen in (reference, week)
                ]
                singles += reported(*without)
        total = REFERENCES * WEEKS
        name, peer = (
            f"weeks without a change, albums of {size}: reported",
            f"{100 * singles / REFERENCES:.3g} % as singles",
        )
        report.add(name, 100 * alarms / total, "%", at_most=5.0, reference=f"of {total} weeks; {peer}")
    for size in SIZES:
        weeks = Week(pool, random, size)
        for change in list(pool)[1:]:
            found = 0
            for _ in range(PAIRS):
                reference = weeks.observed(REFERENCE_IMAGES)
                found += any(reported(reference, weeks.observed(IMAGES, change, 0.5)) for _ in range(2))
            name = f"half of the albums of {size} are {change}: found within two weeks"
            report.add(name, 100 * found / PAIRS, "%")
    report.write()


if __name__ == "__main__":
    main()
