"""A small head above a frozen contrastive model: what it adds on a domain of your own.

    python examples/own_domain.py --images 400

A model of open_clip is trained on plain scenes and then frozen: it stands for CLIP. The own domain
is twin scenes, whose captions share their words. Residual heads are trained on them (CLIP-Adapter,
Gao et al., IJCV 2024), and their weight is chosen on the split "val". Writes
runs/examples/own_domain.png. Needs the extra clip.
"""

from pathlib import Path

import click
import pandas as pd
import torch
from safetensors.torch import save_file
from torch.nn.functional import normalize

from bifocal.backbones.open_clip import OpenClipBackbone, open_clip_library
from bifocal.datasets.corpora import Scenes
from bifocal.datasets.scenes.drawing import draw_scene
from bifocal.evaluation import Baselines, Retrieval
from bifocal.evaluation.base import Subject
from bifocal.losses import InfoNCELoss
from bifocal.training import TrainingPhase, new_model, prepare_inputs, train_phases
from bifocal.training.batches import CaptionBatches
from bifocal.training.members import choose_blend
from bifocal.training.schedules import Cosine

DIM, SIDE = 64, 64
CLIP = {
    "embed_dim": DIM,
    "vision_cfg": {
        "image_size": SIDE,
        "patch_size": 16,
        "width": 64,
        "layers": 3,
        "head_width": 16,
    },
    "text_cfg": {"context_length": 24, "width": 64, "heads": 4, "layers": 2},
}
TOWERS = {"tag": None, "model_arguments": CLIP}
SYSTEMS = {"zero-shot": "zero_shot", "heads": "model", "CCA": "cca"}


def main(images: int = 400, home: Path = Path("runs/examples")) -> dict[str, float]:
    """Train on ``images`` twin scenes, write a picture to ``home``, and return the printed values,
    in percent."""
    # The contrastive model: both towers from scratch, on four times as many plain scenes.
    weights = home / f"open_clip-{images}.safetensors"
    if not weights.is_file():
        train_contrastive(4 * images, epochs=max(1, images // 10), file=weights)

    # The own domain: vectors of the frozen towers, which are in one space.
    inputs = prepare_inputs(
        home,
        corpus={
            "name": "benchmarks.twin_scenes:TwinScenes",
            "train": images,
            "val": images // 4,
            "test": images // 2,
            "size": 96,
        },
        extractor={"name": "OpenClip", **TOWERS},
        weights={"name": "FromFile", "path": str(weights)},
        vectorizer={"name": "OpenClipText", "path": str(weights), **TOWERS},
        seed=1,
    )

    # Heads: normalize(x + b f(x)), where f is zero before the training; b is the best of 0, 0.1,
    # ..., 1 on "val".
    heads = {"image_encoder": "ResidualHead", "text_encoder": "ResidualHead"}
    model = new_model({"name": "TwoBranchModel", "dim": DIM, **heads}, inputs, seed=1)
    phase = TrainingPhase(
        batches=CaptionBatches(batch_size=100),
        loss=InfoNCELoss(temperature=0.07),
        epochs=10,
        learning_rate=0.002,
        schedule=Cosine(),
    )
    train_phases(model, [phase], inputs, seed=1)
    blend = choose_blend(model, inputs)["blend"]

    # The same features and text of the split "test": both towers as they are, the heads, and CCA of
    # the towers.
    subject = Subject(
        model, inputs.dataset, "test", inputs.features, inputs.text, inputs.vectorizer
    )
    systems = Baselines(cca_dim=DIM)(subject).metrics["baselines"]
    sides = ("caption", "image")
    bars = {
        name: [systems[key][f"{side}_retrieval"]["R@10"] for side in sides]
        for name, key in SYSTEMS.items()
    }
    results = {
        f"{side} R@10, {name}": row[column]
        for column, side in enumerate(sides)
        for name, row in bars.items()
    }
    results["image R@10, chance"] = Retrieval()(subject).metrics["chance"]["image_retrieval"][
        "R@10"
    ]
    results["weight of the heads"] = 100 * blend
    for name, value in results.items():
        print(f"{name:28} {value:5.1f} %")

    table = pd.DataFrame(bars, index=[f"{side} R@10" for side in sides])
    table.plot.bar(rot=0, ylabel="percent, test split", figsize=(6, 3.2)).figure.savefig(
        home / "own_domain.png"
    )
    print(f"-> {home / 'own_domain.png'}")
    return results


def train_contrastive(images: int, epochs: int, file: Path) -> None:
    """Train both towers by the loss of CLIP on ``images`` plain scenes, and write their weights."""
    torch.manual_seed(0)
    backbone = OpenClipBackbone("ViT-B-32", None, CLIP)
    network, contrast = backbone.network.train().requires_grad_(), open_clip_library().ClipLoss()
    drawn = [Scenes(seed=2).scene("train", number) for number in range(images)]
    pixels = torch.stack([backbone.preprocess(draw_scene(scene, SIDE)) for scene, _ in drawn])
    tokens = torch.stack(
        [backbone.tokenizer([sentence.text for sentence in sentences]) for _, sentences in drawn]
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.001)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.001, epochs * -(-images // 100))
    for _ in range(epochs):
        for rows in torch.randperm(images).split(100):
            texts = tokens[rows, torch.randint(tokens.shape[1], (len(rows),))]
            vectors = (
                normalize(backbone.project(pixels[rows]), dim=1),
                normalize(network.encode_text(texts), dim=1),
            )
            optimizer.zero_grad()
            contrast(*vectors, network.logit_scale.exp()).backward()
            optimizer.step()
            schedule.step()
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, file)


@click.command()
@click.option(
    "--images",
    default=400,
    show_default=True,
    help="Twin scenes to train on; all other sizes follow.",
)
def command(images: int) -> None:
    """Train residual heads above a small contrastive model on twin scenes."""
    main(images)


if __name__ == "__main__":
    command()
