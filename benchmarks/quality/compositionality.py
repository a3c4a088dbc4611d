"""Which systems read more than the words of a caption?

    python -m benchmarks run quality.compositionality [--only WSABIE CCA] [--set
    prepare_dataset.corpus.train=400]

Trains the systems of quality.leaderboard on twin scenes, which share the words of their captions,
and writes docs/records/compositionality.md: then run 'python -m benchmarks render'. Each system
chooses between a caption of the test split and its minimal edits, given the image (evaluator
``Compositionality``). Trainings are kept in runs/compositionality: run the command again to
continue.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, Report, measured
from benchmarks.scene_systems import DIRECTIONS, SYSTEMS, Artifacts, train
from bifocal.datasets import read_dataset
from bifocal.evaluation import Compositionality, Retrieval
from bifocal.evaluation.base import Subject
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.text import TextStore
from bifocal.text.vectorizers.base import load_vectorizer

HOME = ROOT / "runs" / "compositionality"
TWINS = "prepare_dataset.corpus={name: 'benchmarks.twin_scenes:TwinScenes', train: 2000, val: 200, test: 400}"
TEXTS = {
    "SMILE + InfoNCE": "SRU of 2 layers",
    "BEAN + InfoNCE": "SRU of 2 layers",
    "BEAN + SoDeep + InfoNCE": "SRU of 2 layers",
    "multi-level grounding": "small ELMo, then attention over cells",
    "structure-preserving": "tf-idf",
    "semantic retrieval (V+T)": "tf-idf",
    "WSABIE": "tf-idf",
    "order-free": "mean of word vectors",
    "CCA": "tf-idf",
}
"""What each system reads captions with; all but the first four are bags of words."""
BAGS = [name for name, text in TEXTS.items() if "SRU" not in text and "ELMo" not in text]
KINDS = ("attributes", "nouns", "relation", "count", "negation", "order")
KEEP_WORDS = ("attributes", "nouns", "order")
"""Edits that keep all words: a bag of words has exactly 50 % there."""
CHANCE = 50.0


def measure(artifacts: Artifacts) -> dict[str, Any]:
    """Return the accuracy of each kind of edit with its interval, and R@1, on the split "test", in
    percent."""
    subject = Subject(
        load_model(artifacts.embedding),
        read_dataset(artifacts.dataset),
        "test",
        FeatureStore(artifacts.features),
        TextStore(artifacts.text),
        load_vectorizer(artifacts.text),
    )
    recalls = Retrieval(ks=(1,))(subject).metrics
    return {
        "edits": Compositionality()(subject).metrics["compositionality"],
        "recalls": [recalls[direction]["R@1"] for direction in DIRECTIONS],
    }


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a Markdown table: accuracies with their 95 % intervals, and R@1."""
    lines = [["system", "text", *KINDS, "caption R@1", "image R@1"], ["---"] * (len(KINDS) + 4)]
    for name, result in results.items():
        found = (result["edits"].get(kind) for kind in KINDS)
        cells = [
            f"{e['accuracy']:.1f} ({e['low']:.1f} to {e['high']:.1f})" if e else "-" for e in found
        ]
        lines.append(
            [name, TEXTS[name], *cells, *(f"{recall:.1f}" for recall in result["recalls"])]
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the record of the results."""
    missing = [name for name in TEXTS if name not in results]
    parts = [
        "# Compositionality",
        measured(),
        table(results),
        *([f"Not trained yet: {', '.join(missing)}."] if missing else []),
    ]
    return "\n\n".join(parts) + "\n"


def summarize(results: Mapping[str, Mapping[str, Any]]) -> Report:
    """Return the bag of words' largest deviation from chance, and each system's mean accuracy."""
    report = Report("quality.compositionality")

    def accuracies(name: str, kinds: Sequence[str]) -> list[float]:
        return [
            results[name]["edits"][kind]["accuracy"]
            for kind in kinds
            if kind in results[name]["edits"]
        ]

    deviations = [
        abs(value - CHANCE)
        for name in BAGS
        if name in results
        for value in accuracies(name, KEEP_WORDS)
    ]
    if deviations:
        label = "bags of words, same words in another order: largest deviation from 50 %"
        report.add(label, max(deviations), "points", at_most=0.0)
    for name in results:
        values = accuracies(name, KINDS)
        report.add(f"{name}: mean accuracy over the kinds of edits", sum(values) / len(values), "%")
    return report


def main() -> None:
    """Train the systems that are not trained yet, and write the record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", choices=list(TEXTS), default=list(TEXTS))
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--home", type=Path, default=HOME)
    parser.add_argument(
        "--output", type=Path, default=ROOT / "docs" / "records" / "compositionality.md"
    )
    options = parser.parse_args()
    options.home.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault(
        "MLFLOW_TRACKING_URI", f"sqlite:///{(options.home / 'mlflow.db').resolve()}"
    )
    results = {}
    for name in options.only:
        artifacts, _ = train(name, SYSTEMS[name], [TWINS, *options.settings], options.home)
        results[name] = measure(artifacts)
        print(f"{name}: {results[name]}", flush=True)
    options.output.write_text(page(results))
    print(page(results))
    summarize(results).write()


if __name__ == "__main__":
    main()
