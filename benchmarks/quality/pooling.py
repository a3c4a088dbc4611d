"""Does SMILE beat its ablation "mean", and BEAN's max + min pooling beat GAP?

    python -m benchmarks run quality.pooling [--artifacts artifacts] [--seeds 2] [--epochs 8]

Needs the artifacts dataset, features and text of the default params.yaml ("dvc repro vectorize_captions
extract_features"). Every encoder is trained by train_embedding with the values of params.yaml, the same budget and
the same seeds, and evaluated on the split "test". The thesis' tables 3.4 and 3.5 put SMILE before Mean; BEAN's section
4.3 puts max + min before GAP by 5 points of R@1.
"""

import argparse
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.common import Report
from bifocal.datasets import read_dataset
from bifocal.features import FeatureStore
from bifocal.models import load_model
from bifocal.models.batch import ImageCaptionPairs
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
METRICS = ("caption_retrieval.R@1", "image_retrieval.R@1", "recall_sum")


def trained(encoder: dict[str, Any], artifacts: Path, seed: int, epochs: int) -> dict[str, float]:
    """Train with this encoder and seed; return R@K of the split "test", in percent."""
    values = parameters.load(Path("params.yaml"))
    changed = {
        "seed": seed,
        "train_embedding": {"model": {"image_encoder": encoder}, "phases": {0: {"epochs": epochs}}},
    }
    sections = parameters.validate(parameters.merge(values, changed), catalog.configurable_components().values())
    params = sections[COMPONENT.name]
    assert isinstance(params, TrainEmbeddingParams)
    dataset, features, text = (artifacts / name for name in ("dataset", "features", "text"))
    with tempfile.TemporaryDirectory() as folder:
        embedding = Path(folder)
        run(params, dataset=dataset, features=features, text=text, sorter=artifacts / "sorter", embedding=embedding)
        test = ImageCaptionPairs(read_dataset(dataset).split("test"), FeatureStore(features), TextStore(text))
        return RecallValidator(test)(load_model(embedding))


def compare(report: Report, better: str, worse: str, metrics: dict[str, list[dict[str, float]]]) -> None:
    """Report the mean recall sum of ``better``; its bar is the mean recall sum of ``worse``."""
    first, second = (mean(row["recall_sum"] for row in metrics[name]) for name in (better, worse))
    report.add(f"recall sum of {better}", first, at_least=second, reference=worse)


def main() -> None:
    """Train each encoder with each seed, and compare the mean recall sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"))
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds")
    parser.add_argument("--epochs", type=int, default=8, help="passes over all captions")
    options = parser.parse_args()
    metrics: dict[str, list[dict[str, float]]] = {name: [] for name in ENCODERS}
    print(f"{'':<18} seed " + " ".join(f"{metric:>22}" for metric in METRICS))
    for seed in range(1, options.seeds + 1):
        for name, encoder in ENCODERS.items():
            row = trained(encoder, options.artifacts, seed, options.epochs)
            metrics[name].append(row)
            print(f"{name:<18} {seed:>4} " + " ".join(f"{row[metric]:>22.1f}" for metric in METRICS), flush=True)
    report = Report("quality.pooling")
    compare(report, "SMILE", "SMILE, Mean", metrics)
    compare(report, "BEAN, max + min", "BEAN, GAP", metrics)
    report.write()


if __name__ == "__main__":
    main()
