"""How often does a search find what no drawn scene shows?

    python -m benchmarks run quality.recombined --run .

Queries such as "a little striped red star on wood" have drawn attributes; every word is one of the
captions. The scenes are drawn again from the seed of the run, so it is known which of them show
what a query names. Half of the queries have no match in the collection. A query is found if its
first result reaches the threshold of the calibration. The index has the calibration that
``build_index`` gave it, from held-out captions.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.random import Generator

from benchmarks.common import Report
from bifocal.datasets.base import SPLITS
from bifocal.datasets.scenes.captions import ADJECTIVES, NOUNS, ON
from bifocal.datasets.scenes.layout import BACKGROUNDS, COLORS, RADII, SHAPES, TEXTURES, Scene
from bifocal.datasets.scenes.scenes import Scenes
from bifocal.onnx.encoders import Embedder
from bifocal.search import Search, SearchIndex
from bifocal.search.calibration.fitting import FALSE_POSITIVES, calibration_error

QUERIES, BATCH = 600, 64


@dataclass(frozen=True)
class Named:
    """What a query names; None is not named."""

    color: str
    shape: str
    texture: str | None
    size: str | None
    background: str | None

    @classmethod
    def draw(cls, random: Generator) -> "Named":
        """Draw attributes; texture, size and background are left out of some queries."""
        texture, size, background = (
            str(random.choice(names)) if random.random() < share else None
            for names, share in ((TEXTURES, 0.6), (tuple(RADII), 0.3), (BACKGROUNDS, 0.7))
        )
        return cls(
            str(random.choice(tuple(COLORS))), str(random.choice(SHAPES)), texture, size, background
        )

    def text(self, random: Generator) -> str:
        """Return a query with the words of the captions."""
        adjectives = [name for name in (self.size, self.texture, self.color) if name is not None]
        words = [str(random.choice(ADJECTIVES[name])) for name in adjectives]
        article = "an" if words[0][0] in "aeiou" else "a"
        phrase = f"{article} {' '.join(words)} {random.choice(NOUNS[self.shape])}"
        return (
            phrase if self.background is None else f"{phrase} {random.choice(ON[self.background])}"
        )

    def is_in(self, scene: Scene) -> bool:
        """Return whether a scene shows it, by itself or in a group."""
        if self.background not in (None, scene.background):
            return False
        looks = [group[0].appearance for group in scene.groups]
        return any(
            (look.color, look.shape) == (self.color, self.shape)
            and self.texture in (None, look.texture)
            and self.size in (None, look.size)
            for look in looks
        )


def scenes_of(run: Path, item_ids: list[str]) -> list[Scene]:
    """Return the scene of each item of a run with drawn scenes."""
    params = yaml.safe_load((run / "params.yaml").read_text())
    corpus = {
        name: value for name, value in params["prepare_dataset"]["corpus"].items() if name != "name"
    }
    drawn = Scenes(seed=params["seed"], **corpus)
    names = [item_id.split("-") for item_id in item_ids]
    assert {split for split, _ in names} <= set(SPLITS)
    return [drawn.scene(split, int(number))[0] for split, number in names]


def main() -> None:
    """Search all queries, and report the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, default=Path(), help="run folder of drawn scenes with an index"
    )
    run = parser.parse_args().run
    index, embedder = (
        SearchIndex.open(run / "artifacts" / "index"),
        Embedder(run / "artifacts" / "onnx"),
    )
    scenes, random = scenes_of(run, list(index.ids)), np.random.default_rng(0)
    texts: dict[bool, list[str]] = {True: [], False: []}
    fits: dict[bool, list[list[bool]]] = {True: [], False: []}
    while min(len(asked) for asked in texts.values()) < QUERIES:
        named = Named.draw(random)
        fitting = [named.is_in(scene) for scene in scenes]
        if len(texts[any(fitting)]) < QUERIES:
            texts[any(fitting)].append(named.text(random))
            fits[any(fitting)].append(fitting)
    queries = [*texts[False], *texts[True]]
    parts = [
        embedder.embed_sentences(queries[start : start + BATCH])
        for start in range(0, len(queries), BATCH)
    ]
    first = [hits[0] for hits in Search(index).batch(np.concatenate(parts), 1, sentences=True)]
    calibration = index.calibration
    if calibration is None:
        raise ValueError(f"the index of {run} is not calibrated")
    relevant = np.array(
        [fit[hit.row] for fit, hit in zip([*fits[False], *fits[True]], first, strict=True)]
    )
    probabilities = np.array([hit.probability for hit in first])
    found = probabilities >= calibration.threshold
    report = Report("quality.recombined")
    report.add(
        "queries without a match that are found",
        found[:QUERIES].mean(),
        at_most=FALSE_POSITIVES,
        reference=f"{QUERIES} queries",
    )
    report.add(
        "calibration error of held-out captions",
        calibration.error,
        at_most=0.05,
        reference=f"{calibration.queries} captions, cross-validated",
    )
    report.add("held-out captions with a relevant first result that are found", calibration.recall)
    report.add(
        "queries with a match whose first result is relevant",
        relevant[QUERIES:].mean(),
        reference=f"{QUERIES} queries",
    )
    report.add(
        "queries with a match: mean probability of the first result", probabilities[QUERIES:].mean()
    )
    report.add("queries with a relevant first result that are found", found[relevant].mean())
    report.add(
        "calibration error of all queries, judged by the scenes",
        calibration_error(probabilities, relevant),
    )
    report.write()


if __name__ == "__main__":
    main()
