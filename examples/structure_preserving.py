"""Structure-preserving embeddings: captions of one image stay neighbors.

    python examples/structure_preserving.py --images 400

Wang, Li and Lazebnik, "Learning deep structure-preserving image-text embeddings", CVPR 2016. Trains
with and without the structure constraint on captions, beside CCA, and writes
runs/examples/structure_preserving.png.
"""

from pathlib import Path

import click
import pandas as pd
import torch

from bifocal.evaluation import Retrieval
from bifocal.evaluation.base import Subject
from bifocal.losses import StructurePreservingLoss
from bifocal.models.base import Model
from bifocal.training import TrainingPhase, new_model, prepare_inputs, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.initialization.cca import CCA, caption_blocks
from bifocal.training.inputs import TrainingInputs
from bifocal.training.schedules import MultiStep


def main(images: int = 400, home: Path = Path("runs/examples")) -> dict[str, float]:
    """Train on ``images`` scenes, write a picture to ``home``, and return the printed values, in
    percent."""
    # Data: scenes, a small backbone that is trained on them, whose cells are averaged, and tf-idf
    # vectors of captions.
    inputs = prepare_inputs(
        home,
        corpus={
            "name": "Scenes",
            "train": images,
            "val": images // 4,
            "test": images // 2,
            "size": 96,
        },
        extractor={
            "name": "Grid",
            "backbone": "resnet10t",
            "stage": 3,
            "size": 96,
            "model_arguments": {"channels": [16, 32, 64, 128], "stem_width": 8},
        },
        weights={"name": "TrainOnPhrases", "epochs": max(1, images // 32), "min_count": 5},
        vectorizer={"name": "TFIDF", "form": "stem", "stop_words": False, "min_count": 2},
        seed=1,
    )

    models = {
        "CCA": cca(inputs),
        "no structure": train(inputs, textual_weight=0.0),
        "structure of captions": train(inputs, textual_weight=0.2),
    }
    results = {}
    for name, model in models.items():
        subject = Subject(
            model, inputs.dataset, "test", inputs.features, inputs.text, inputs.vectorizer
        )
        recall = Retrieval()(subject).metrics
        results[f"caption R@1, {name}"] = recall["caption_retrieval"]["R@1"]
        results[f"image R@1, {name}"] = recall["image_retrieval"]["R@1"]
        results[f"neighbors, {name}"] = neighbors(subject)
    for name, value in results.items():
        print(f"{name:38} {value:5.1f} %")

    measures = ("caption R@1", "image R@1", "neighbors")
    bars = {name: [results[f"{measure}, {name}"] for measure in measures] for name in models}
    plot = pd.DataFrame(bars, index=measures).plot.bar(
        rot=0, ylabel="percent, test split", figsize=(6, 3.2)
    )
    plot.figure.savefig(home / "structure_preserving.png")
    print(f"-> {home / 'structure_preserving.png'}")
    return results


def train(inputs: TrainingInputs, textual_weight: float) -> Model:
    """Return a model that was trained with a weight lambda_3 of the structure of captions."""
    # Figure 1: two fully connected layers per branch, batch normalization, and unit norm.
    branch = {"name": "ProjectionEncoder", "hidden": 512, "dropout": 0.1}
    model = new_model(
        {"name": "TwoBranchModel", "dim": 128, "image_encoder": branch, "text_encoder": branch},
        inputs,
        seed=1,
    )
    # d(x, y) + m < d(x, y') for a caption y of image x and any other caption y' (1), the same for
    # images (2) with the weight lambda_1, and d(y, y') + m < d(y, y'') for two captions y, y' of
    # one image (4) with lambda_3; together (5). Constraint (4) needs two captions of an image in a
    # batch, section 2.2.
    phase = TrainingPhase(
        batches=CaptionBatches(batch_size=80, extra_captions_per_image=1),
        loss=StructurePreservingLoss(margin=0.1, image_weight=2.0, textual_weight=textual_weight),
        epochs=8,
        learning_rate=0.001,
        schedule=MultiStep([5, 7], gamma=0.5),
    )
    train_phases(model, [phase], inputs, seed=1)
    return model


def cca(inputs: TrainingInputs) -> Model:
    """Return canonical correlation analysis of mean cells and captions, the baseline of tables 1 to
    3."""
    dim = min(48, inputs.features.dim, inputs.text.dim)
    linear = {"image_encoder": "LinearEncoder", "text_encoder": "LinearEncoder"}
    model = new_model({"name": "TwoBranchModel", "dim": dim, **linear}, inputs)
    CCA().fit(model, caption_blocks(inputs.captions("train")))
    return model


def neighbors(subject: Subject) -> float:
    """Return the percentage of captions whose nearest caption describes the same image."""
    captions, image = subject.embeddings[1], subject.pairs.image_of_caption
    nearest = (captions @ captions.T).fill_diagonal_(-torch.inf).argmax(dim=1)
    return 100 * float((image[nearest] == image).float().mean())


@click.command()
@click.option(
    "--images", default=400, show_default=True, help="Scenes to train on; all other sizes follow."
)
def command(images: int) -> None:
    """Train structure-preserving embeddings on drawn scenes."""
    main(images)


if __name__ == "__main__":
    command()
