"""SMILE: attention over the regions of an image, from drawn scenes to heatmaps.

    python examples/smile.py --images 400

Engilberge, "Deep inside visual-semantic embeddings", 2020, chapters 3 and 4. Prints retrieval and
pointing on images that were not trained on, and writes runs/examples/smile.png.
"""

from pathlib import Path

import click
import torch

from bifocal.evaluation import PointingGame, Retrieval
from bifocal.evaluation.base import Subject
from bifocal.losses import HardestTripletLoss, InfoNCELoss, WeightedSumLoss
from bifocal.onnx.images import open_image
from bifocal.report.pictures import contact_sheet, overlay
from bifocal.search import Heatmaps
from bifocal.training import TrainingPhase, new_model, prepare_inputs, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.schedules import MultiStep


def main(images: int = 400, home: Path = Path("runs/examples")) -> dict[str, float]:
    """Train on ``images`` scenes, write a picture to ``home``, and return the printed values, in
    percent."""
    # Data: scenes with five captions each, a small backbone that is trained on them, one feature
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

    # Image: G = norm(W_1 X), the regions in the joint space (3.6); A = softmax over the regions of
    # W_2 G, one weight per region and dimension (3.8); x = the sum over the regions of A o G (3.7).
    # Sentence: word vectors and an SRU.
    encoders = {
        "image_encoder": "SMILEEncoder",
        "text_encoder": {"name": "SRUEncoder", "layers": 2},
    }
    model = new_model({"name": "TwoBranchModel", "dim": 256, **encoders}, inputs, seed=1)

    # The triplet loss of the hardest negative in the batch (3.9)-(3.11). In a training of a few
    # hundred steps, it pulls all vectors together; InfoNCE keeps them apart.
    phase = TrainingPhase(
        batches=CaptionBatches(batch_size=80),
        loss=WeightedSumLoss([HardestTripletLoss(margin=0.2), InfoNCELoss(temperature=0.07)]),
        epochs=10,
        learning_rate=0.002,
        schedule=MultiStep([5, 7, 9], gamma=0.5),
    )
    train_phases(model, [phase], inputs, seed=1)

    # Retrieval on the split "test", also re-ranked by (3.12)-(3.13); pointing by <v, G_r>, the
    # score of region r (4.3).
    subject = Subject(
        model, inputs.dataset, "test", inputs.features, inputs.text, inputs.vectorizer
    )
    retrieval = Retrieval()(subject).metrics
    pointing = PointingGame()(subject).metrics["pointing"]
    results = {
        "image R@1": retrieval["image_retrieval"]["R@1"],
        "image R@1, re-ranked": retrieval["reranked"]["image_retrieval"]["R@1"],
        "image R@1, chance": retrieval["chance"]["image_retrieval"]["R@1"],
        "pointing": pointing["accuracy"],
        "pointing, image center": pointing["centre"],
    }
    for name, value in results.items():
        print(f"{name:24} {value:5.1f} %")

    # Where the model looks: |A_r o G_r|, the share of each region in x, which needs no text; and
    # (4.3) for two phrases.
    image_id = str(subject.split.images["image_id"].iloc[0])
    picture = open_image(subject.split.image_path(image_id))
    regions = inputs.features.gather(inputs.features.rows([image_id]))
    encoder = model.image_encoder
    with torch.inference_mode():
        g = encoder.region_embeddings(regions.features.float())
        share = (encoder.weights(g, regions.mask) * g).norm(dim=2).reshape(6, 6)
    shown = [(overlay(picture, share.numpy()), "attention, without a text")]
    heatmaps = Heatmaps(model, inputs.features)
    phrases = subject.split.phrases.query("image_id == @image_id")["phrase"].drop_duplicates()
    for phrase in phrases.head(2):
        with torch.inference_mode():
            vector = model.embed_captions(inputs.vectorizer.vectorize([phrase]))[0]
        shown.append((overlay(picture, heatmaps(image_id, vector).numpy()), phrase))
    contact_sheet("SMILE: attention, and the heatmaps of two phrases", shown).save(
        home / "smile.png"
    )
    print(f"-> {home / 'smile.png'}")
    return results


@click.command()
@click.option(
    "--images", default=400, show_default=True, help="Scenes to train on; all other sizes follow."
)
def command(images: int) -> None:
    """Train SMILE on drawn scenes."""
    main(images)


if __name__ == "__main__":
    command()
