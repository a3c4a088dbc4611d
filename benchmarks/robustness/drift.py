"""Does the monitor report a week only if it changed?

    python -m benchmarks run robustness.drift             # with pipelines/policies/thresholds.yaml
    python -m benchmarks run robustness.drift --tuning    # on the scenes of the choice, no result

Each week has 500 new scenes and 1,000 short queries, drawn from a pool that the demo's model embeds
once. The reference has 700 other scenes and 1,000 other queries. In a week with a change, 20 % of
the images are in another style (gray, line drawings or four tones per color), or 10 % of the
queries are sentences about photographs. A change is found if one of two weeks crosses a threshold.
"""

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps
from scipy.stats import beta

from benchmarks.common import Report
from bifocal.datasets.scenes.drawing import draw_scene
from bifocal.datasets.scenes.scenes import Scenes
from bifocal.monitoring.drift import DriftTest, Thresholds, compare
from bifocal.monitoring.observations import Count, Observations, embed, nothing_found
from bifocal.search.calibration.fitting import calibrate
from bifocal.search.trained_model import TrainedModel
from pipelines.app.demo import unpack
from pipelines.policies import load_thresholds

Array = NDArray[Any]
SCENES, STYLED, FOREIGN = 1300, 150, 300
REFERENCE_IMAGES, REFERENCE_QUERIES = 700, 1000
REFERENCES, WEEKS, PAIRS, FEW_PAIRS = 50, 5, 15, 8
TUNING_SEED, REPORTED_SEED = 4002, 4003
STYLES: Mapping[str, Callable[[Image.Image], Image.Image]] = {
    "gray": lambda image: ImageOps.grayscale(image).convert("RGB"),
    "line drawings": lambda image: (
        ImageOps.grayscale(image).filter(ImageFilter.CONTOUR).convert("RGB")
    ),
    "four tones": lambda image: ImageOps.posterize(image, 2),
}
PEOPLE = (
    "a man",
    "two women",
    "a child",
    "an old man",
    "a group of people",
    "a brown dog",
    "a player",
    "a cyclist",
)
ACTIONS = (
    "runs",
    "jumps",
    "sits",
    "smiles",
    "climbs",
    "rides a bicycle",
    "plays football",
    "eats a sandwich",
)
PLACES = (
    "in the park",
    "on a street",
    "at the lake",
    "near a car",
    "in the kitchen",
    "on a mountain",
    "at a station",
)


@dataclass(frozen=True)
class Queries:
    """Queries: their vectors (n, d), and the properties of each query, (n,)."""

    vectors: Array
    unknown: Array
    nothing: Array

    def take(self, rows: Array) -> "Queries":
        """Return some of them."""
        return Queries(self.vectors[rows], self.unknown[rows], self.nothing[rows])

    def joined(self, others: "Queries") -> "Queries":
        """Return both together."""
        pairs = [
            (self.vectors, others.vectors),
            (self.unknown, others.unknown),
            (self.nothing, others.nothing),
        ]
        return Queries(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True)
class Pool:
    """Embedded scenes (n, d), the same in other styles, and queries of both domains."""

    scenes: Array
    styled: Mapping[str, Array]
    queries: Queries
    foreign: Queries


def draw_pool(model: TrainedModel, seed: int) -> Pool:
    """Draw and embed the pool."""
    random, corpus = np.random.default_rng(seed), Scenes(seed=seed, short=5)
    scenes: list[Array] = []
    styled: dict[str, list[Array]] = {name: [] for name in STYLES}
    texts = []
    for number in range(SCENES):
        scene, sentences = corpus.scene("train", number)
        image = draw_scene(scene, 128)
        # The sentences are queries too; the first five are long captions.
        texts += [sentence.text for sentence in sentences[5:7]]
        scenes.append(model.encode_image([image]))
        if number < STYLED:
            for name, change in STYLES.items():
                styled[name].append(model.encode_image([change(image)]))
    foreign = [
        f"{random.choice(PEOPLE)} {random.choice(ACTIONS)} {random.choice(PLACES)}"
        for _ in range(FOREIGN)
    ]
    index = model.index
    probes = [
        (item, text)
        for row, item in enumerate(index.ids)
        for text in model.collection.captions(row)[-2:]
    ]
    index.calibration = calibrate(
        index, embed(model.embedder, [text for _, text in probes]), [item for item, _ in probes]
    )
    vectors = {name: np.concatenate(parts) for name, parts in styled.items()}
    return Pool(np.concatenate(scenes), vectors, _queries(model, texts), _queries(model, foreign))


def _queries(model: TrainedModel, texts: list[str]) -> Queries:
    vectors = embed(model.embedder, texts)
    unknown = np.array(
        [not all((model.embedder.sentences.known(text) or {}).values()) for text in texts]
    )
    nothing = np.array([bool(nothing_found(model.index, vector[None])) for vector in vectors])
    return Queries(vectors, unknown, nothing)


@dataclass
class Simulation:
    """Weeks that are drawn from a pool."""

    pool: Pool
    thresholds: Thresholds
    random: np.random.Generator

    def start(self) -> None:
        """Draw the reference, and the scenes and queries that no reference has."""
        images = self.random.permutation(len(self.pool.scenes))
        queries = self.random.permutation(len(self.pool.queries.vectors))
        self.other_images, self.other_queries = (
            images[REFERENCE_IMAGES:],
            queries[REFERENCE_QUERIES:],
        )
        scenes, asked = (
            self.pool.scenes[images[:REFERENCE_IMAGES]],
            self.pool.queries.take(queries[:REFERENCE_QUERIES]),
        )
        self.reference = self._observed(scenes, asked)

    def week(
        self, images: int, queries: int, style: str = "", styled: float = 0.0, foreign: float = 0.0
    ) -> list[DriftTest]:
        """Return the findings for a week with these shares of styled images and foreign queries."""
        changed, strange = round(styled * images), round(foreign * queries)
        vectors = self.pool.scenes[self._drawn(self.other_images, images - changed)]
        if changed:
            drawn = self._drawn(np.arange(len(self.pool.styled[style])), changed)
            vectors = np.concatenate([vectors, self.pool.styled[style][drawn]])
        asked = self.pool.queries.take(self._drawn(self.other_queries, queries - strange))
        if strange:
            asked = asked.joined(self.pool.foreign.take(self._drawn(np.arange(FOREIGN), strange)))
        observed = self._observed(vectors, asked)
        return compare(
            self.reference, observed, self.thresholds, seed=int(self.random.integers(2**31))
        )

    def share_found(self, pairs: int, **week: Any) -> float:
        """Return the share of week pairs with a week that crosses a threshold."""
        count = 0
        for _ in range(pairs):
            self.start()
            count += any(any(finding.crossed for finding in self.week(**week)) for _ in range(2))
        return count / pairs

    def _drawn(self, rows: Array, count: int) -> Array:
        chosen: Array = self.random.permutation(rows)[:count]
        return chosen

    def _observed(self, vectors: Array, queries: Queries) -> Observations:
        return Observations(
            images=vectors,
            queries=queries.vectors,
            unknown_words=Count(int(queries.unknown.sum()), len(queries.unknown)),
            nothing_found=Count(int(queries.nothing.sum()), len(queries.nothing)),
        )


def false_alarms(simulation: Simulation, report: Report) -> None:
    """Measure weeks without a change."""
    alarms, crossed = 0, Counter[str]()
    for _ in range(REFERENCES):
        simulation.start()
        for _ in range(WEEKS):
            names = [finding.name for finding in simulation.week(500, 1000) if finding.crossed]
            alarms += bool(names)
            crossed.update(names)
    total = REFERENCES * WEEKS
    bound = 100 * beta.ppf(0.95, alarms + 1, total - alarms)
    tests = ", ".join(f"{name} {count}" for name, count in crossed.most_common()) or "no test"
    found = (
        f"{alarms} of {total} weeks with {REFERENCES} references: {tests}; 95 % bound {bound:.1f} %"
    )
    report.add(
        "weeks without a change: reported", 100 * alarms / total, "%", at_most=2.0, reference=found
    )


def main() -> None:
    """Measure false alarms, and how many changes are found within two weeks."""
    tuning = "--tuning" in sys.argv
    policy = load_thresholds()
    with TemporaryDirectory() as folder:
        pool = draw_pool(unpack(Path(folder) / "demo"), TUNING_SEED if tuning else REPORTED_SEED)
    simulation = Simulation(
        pool,
        Thresholds.of(policy.model_dump()),
        np.random.default_rng(TUNING_SEED if tuning else REPORTED_SEED),
    )
    report = Report("robustness.drift")
    false_alarms(simulation, report)
    for style in STYLES:
        name = f"20 % of 500 images as {style}: found within two weeks"
        report.add(
            name,
            simulation.share_found(PAIRS, images=500, queries=1000, style=style, styled=0.2),
            at_least=0.9,
        )
    name = "10 % of 1,000 queries from another domain: found within two weeks"
    report.add(
        name, simulation.share_found(PAIRS, images=500, queries=1000, foreign=0.1), at_least=0.9
    )
    if not tuning:
        report.write()
    for style in STYLES:
        name = f"20 % of 200 images as {style}: found within two weeks"
        report.add(
            name,
            simulation.share_found(FEW_PAIRS, images=200, queries=100, style=style, styled=0.2),
        )
    for queries in (50, 100):
        name = f"10 % of {queries} queries from another domain: found within two weeks"
        report.add(
            name, simulation.share_found(FEW_PAIRS, images=100, queries=queries, foreign=0.1)
        )
    if not tuning:
        report.write()


if __name__ == "__main__":
    main()
