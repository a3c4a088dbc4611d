"""Multi-level grounding: every word attends to the cells of the level that explains it best.

    python examples/multi_level.py --images 400

Akbari et al., "Multi-level multimodal common semantic space for image-phrase grounding", CVPR 2019.
Prints retrieval and pointing, and writes runs/examples/multi_level.png. This short training ranks
images above chance, and points no better than at the image center: attention needs more steps, as
in recipes/scenes/multi_level.yaml.
"""

from pathlib import Path

import click
import torch

from bifocal.evaluation import PointingGame, Retrieval
from bifocal.evaluation.base import Subject
from bifocal.features.boxes import cell_boxes
from bifocal.localization import attend, rasterize
from bifocal.losses import GroundingLoss
from bifocal.onnx.images import open_image
from bifocal.report.pictures import contact_sheet, overlay
from bifocal.text import tokenize
from bifocal.training import TrainingPhase, new_model, prepare_inputs, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.schedules import MultiStep

CELLS = 6
"""Cells per side of a level."""


def main(images: int = 400, home: Path = Path("runs/examples")) -> dict[str, float]:
    """Train on ``images`` scenes, write a picture to ``home``, and return the printed values, in
    percent."""
    # Data: scenes, two levels of a small backbone that is trained on them, and ELMo, trained on the
    # captions, whose three layers give each word a vector in its sentence. The paper has four
    # levels of VGG or PNASNet.
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
            "name": "MultiLevel",
            "backbone": "resnet10t",
            "layers": ["layer3", "layer4"],
            "cells": CELLS,
            "size": 96,
            "model_arguments": {"channels": [16, 32, 64, 64], "stem_width": 8, "output_stride": 16},
        },
        weights={"name": "TrainOnPhrases", "epochs": max(1, images // 32), "min_count": 5},
        vectorizer={
            "name": "ElmoLayers",
            "projection_dim": 32,
            "lstm_dim": 64,
            "filters": [[1, 16], [2, 16], [3, 32]],
            "epochs": 4,
        },
        seed=1,
    )

    # Image: three 1 x 1 convolutions per level, to cells v of unit norm. Words and sentence: a
    # learned mixture of the layers of ELMo and two layers, to s. Attention of a word to a cell is H
    # = max(0, <s, v>) (1), the attended feature a is the sum of H v, of unit norm (2), the
    # pertinence of a level is <a, s> (3), and the best level counts (4). R_w joins the words of a
    # sentence (5); R_s is the same for its vector (6).
    encoders = {
        "image_encoder": {"name": "MultiLevelEncoder", "levels": 2},
        "text_encoder": {"name": "ElmoMixtureEncoder", "slope": 0.25},
    }
    model = new_model(
        {"name": "GroundingModel", "dim": 96, "unit_sentence": True, **encoders}, inputs, seed=1
    )

    # Posteriors of the matching sentence and image in the batch, by R_w and by R_s (7)-(10).
    # gamma_2 is 40 in place of 10: in so few steps, cosines stay close to each other.
    phase = TrainingPhase(
        batches=CaptionBatches(batch_size=32),
        loss=GroundingLoss(sharpness=40.0),
        epochs=6,
        learning_rate=0.002,
        schedule=MultiStep([3, 5], gamma=0.5),
    )
    train_phases(model, [phase], inputs, seed=1)

    # Pointing at phrases in their sentences, section 4.3.
    subject = Subject(
        model, inputs.dataset, "test", inputs.features, inputs.text, inputs.vectorizer
    )
    retrieval, pointing = Retrieval()(subject).metrics, PointingGame()(subject).metrics["pointing"]
    results = {
        "image R@10": retrieval["image_retrieval"]["R@10"],
        "image R@10, chance": retrieval["chance"]["image_retrieval"]["R@10"],
        "pointing": pointing["accuracy"],
        "pointing, image center": pointing["centre"],
    }
    for name, value in results.items():
        print(f"{name:24} {value:5.1f} %")

    # Attention of single words, and the level that each of them chose.
    image_id = str(subject.split.images["image_id"].iloc[0])
    picture = open_image(subject.split.image_path(image_id))
    sentence = str(subject.split.captions.query("image_id == @image_id")["text"].iloc[0])
    with torch.inference_mode():
        (cells,) = model.embed_images(
            inputs.features.gather(inputs.features.rows([image_id]))
        )  # (L, R, d)
        words = model.embed_captions(inputs.vectorizer.vectorize([sentence]))[1][0]  # (T, d)
        attention = attend(words, cells)
    best = attention.pertinence.topk(4).indices.sort().values.tolist()
    boxes = cell_boxes(CELLS, CELLS)
    shown = []
    for word in best:
        heatmap = rasterize(attention.heatmaps[word], boxes, 64, 64)
        text = f"{tokenize(sentence)[word]}, level {int(attention.level[word])}"
        shown.append((overlay(picture, heatmap.numpy()), text))
    contact_sheet(sentence, shown).save(home / "multi_level.png")
    print(f"-> {home / 'multi_level.png'}")
    return results


@click.command()
@click.option(
    "--images", default=400, show_default=True, help="Scenes to train on; all other sizes follow."
)
def command(images: int) -> None:
    """Train multi-level grounding on drawn scenes."""
    main(images)


if __name__ == "__main__":
    command()
