"""How much does the pooling of an image's regions decide: SMILE's attention, its ablations, BEAN's max + min, GAP?

python -m benchmarks.quality.pooling [--artifacts artifacts] [--seeds 2] [--epochs 8]

Needs the artifacts dataset, features and text of the default params.yaml ("dvc repro vectorize_captions
extract_features"). Every encoder is trained by train_embedding with the values of params.yaml, the same budget and
the same seeds, and judged on the split "test". The thesis' tables 3.4 and 3.5 put SMILE before Mean; BEAN's section
4.3 puts max + min before GAP by 5 points of R@1.
"""

import argparse
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from bifocal.batch import ImageCaptionPairs
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.text import TextStore
from bifocal.training.validators.recall import RecallValidator
from components import catalog
from components.train_embedding.run import run
from components.train_embedding.spec import COMPONENT, TrainEmbeddingParams
from runtime import parameters

ENCODERS: dict[str, dict[str, Any]] = {
    "SMILE": {"name": "SMILEEncoder"},
    "SMILE, Mean": {"name": "SMILEEncoder", "ablation": "mean"},
    "BEAN, max + min": {"name": "BEANEncoder", "backbone": None, "maps": 512},
    "BEAN, GAP": {"name": "BEANEncoder", "backbone": None, "maps": 512, "pooling": "average"},
}
FIGURES = ("caption_retrieval.R@1", "image_retrieval.R@1", "recall_sum")


def trained(encoder: dict[str, Any], artifacts: Path, seed: int, epochs: int) -> dict[str, float]:
    """R@K, in percent, of the split "test" after training with this encoder and seed."""
    values = parameters.load(Path("params.yaml"))
    changed = {"seed": seed, "train_embedding": {"image_encoder": encoder, "epochs": epochs}}
    sections = parameters.validate(parameters.merge(values, changed), catalog.configurable_components().values())
    params = sections[COMPONENT.name]
    assert isinstance(params, TrainEmbeddingParams)
    dataset, features, text = (artifacts / name for name in ("dataset", "features", "text"))
    with tempfile.TemporaryDirectory() as folder:
        embedding = Path(folder)
        run(params, dataset=dataset, features=features, text=text, sorter=artifacts / "sorter", embedding=embedding)
        test = ImageCaptionPairs(read_dataset(dataset).split("test"), FeatureStore(features), TextStore(text))
        return RecallValidator(test)(load_model(embedding))


def report(better: str, worse: str, figures: dict[str, list[dict[str, float]]]) -> None:
    """Whether one encoder's mean recall sum is above the other's."""
    sums = [mean(row["recall_sum"] for row in figures[name]) for name in (better, worse)]
    said = "ok" if sums[0] > sums[1] else "MISS"
    print(f"{better:<18} recall sum {sums[0]:6.1f}   bar: above {worse}, {sums[1]:6.1f}   {said}", flush=True)


def main() -> None:
    """Train each encoder with each seed, and print the figures beside their bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"))
    parser.add_argument("--seeds", type=int, default=2, help="seeds 1 to this")
    parser.add_argument("--epochs", type=int, default=8, help="passes over all captions")
    options = parser.parse_args()
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in ENCODERS}
    print(f"{'':<18} seed " + " ".join(f"{figure:>22}" for figure in FIGURES))
    for seed in range(1, options.seeds + 1):
        for name, encoder in ENCODERS.items():
            row = trained(encoder, options.artifacts, seed, options.epochs)
            figures[name].append(row)
            print(f"{name:<18} {seed:>4} " + " ".join(f"{row[figure]:>22.1f}" for figure in FIGURES), flush=True)
    report("SMILE", "SMILE, Mean", figures)
    report("BEAN, max + min", "BEAN, GAP", figures)


if __name__ == "__main__":
    main()
