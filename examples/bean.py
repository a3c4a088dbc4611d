"""BEAN: maximum plus minimum over the cells of an image, and heatmaps from the weights of the last
layer.

    python examples/bean.py --images 400

Engilberge, Chevallier, Perez and Cord, "Finding beans in burgers", CVPR 2018. Compares its pooling
with the average, chooses k of the heatmaps on the split "val", and writes runs/examples/bean.png.
"""

from pathlib import Path

import click
import torch

from bifocal.evaluation import PointingGame, Retrieval
from bifocal.evaluation.base import Subject
from bifocal.localization import BEANHeatmap
from bifocal.losses import HardestTripletLoss, InfoNCELoss, WeightedSumLoss
from bifocal.onnx.images import open_image
from bifocal.report.pictures import contact_sheet, overlay
from bifocal.search import Heatmaps
from bifocal.training import TrainingPhase, new_model, prepare_inputs, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.inputs import TrainingInputs
from bifocal.training.schedules import MultiStep


def main(images: int = 400, home: Path = Path("runs/examples")) -> dict[str, float]:
    """Train on ``images`` scenes, write a picture to ``home``, and return the printed values."""
    # Data: scenes with five captions each, a small backbone that is trained on them, one feature F
    # per grid cell.
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
        vectorizer={"name": "Word2Vec", "dim": 64, "min_count": 2, "epochs": 10, "subsample": 0.0},
        seed=1,
    )

    average, bean = train(inputs, "average"), train(inputs, "max_min")
    results = {}
    for name, subject in (("average", average), ("max + min", bean)):
        retrieval = Retrieval()(subject).metrics
        results[f"image R@1, {name}"] = retrieval["image_retrieval"]["R@1"]
    results["image R@1, chance"] = retrieval["chance"]["image_retrieval"]["R@1"]

    # Pointing at the maximum of H, the sum over the k largest entries u of v of |v[u]| G'[:, :, u]
    # (9). G' is the last layer applied to every cell (8). The evaluator chooses k on the split
    # "val".
    pointing = PointingGame()(bean).metrics["pointing"]
    results["pointing"] = pointing["accuracy"]
    results["pointing, image center"] = pointing["centre"]
    for name, value in results.items():
        print(f"{name:24} {value:5.1f} %")
    print(
        "k on val:",
        ", ".join(f"{k}: {value:.1f} %" for k, value in pointing["accuracy_of_k"].items()),
    )

    # The heatmap of a phrase in each of four images.
    heatmaps = Heatmaps(bean.model, inputs.features, BEANHeatmap(k=pointing["k"]))
    shown = []
    for row in bean.split.phrases.drop_duplicates("image_id").head(4).itertuples():
        with torch.inference_mode():
            vector = bean.model.embed_captions(inputs.vectorizer.vectorize([row.phrase]))[0]
        picture = open_image(bean.split.image_path(row.image_id))
        shown.append((overlay(picture, heatmaps(row.image_id, vector).numpy()), row.phrase))
    contact_sheet("BEAN: where a phrase is", shown).save(home / "bean.png")
    print(f"-> {home / 'bean.png'}")
    return results


def train(inputs: TrainingInputs, pooling: str) -> Subject:
    """Return a trained model with one of two poolings, and the images to evaluate it on."""
    # Image: G = A F, a 1 x 1 convolution without bias (1); h[u] = max G[:, :, u] + min G[:, :, u]
    # (2), or the mean; x = the projection of h, of unit norm (3). Sentence: word vectors and a
    # simple recurrent unit, to v (4).
    encoders = {
        "image_encoder": {
            "name": "BEANEncoder",
            "pooling": pooling,
            "maps": 256,
            "dropout": 0.1,
            "backbone": None,
            "crop": None,
        },
        "text_encoder": {"name": "SRUEncoder", "layers": 2},
    }
    model = new_model({"name": "TwoBranchModel", "dim": 256, **encoders}, inputs, seed=1)
    # Triplets <x, v> (5) with the hardest negative of the batch (6)-(7). InfoNCE is added for the
    # reason that smile.py states.
    phase = TrainingPhase(
        batches=CaptionBatches(batch_size=80),
        loss=WeightedSumLoss([HardestTripletLoss(margin=0.2), InfoNCELoss(temperature=0.07)]),
        epochs=8,
        learning_rate=0.002,
        schedule=MultiStep([4, 6, 7], gamma=0.5),
    )
    train_phases(model, [phase], inputs, seed=1)
    return Subject(model, inputs.dataset, "test", inputs.features, inputs.text, inputs.vectorizer)


@click.command()
@click.option(
    "--images", default=400, show_default=True, help="Scenes to train on; all other sizes follow."
)
def command(images: int) -> None:
    """Train BEAN on drawn scenes."""
    main(images)


if __name__ == "__main__":
    command()
